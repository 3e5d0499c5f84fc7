//! Who watches over an endpoint: connects, finds out whether it answers, and connects again.
//!
//! Each endpoint has a watch of its own, also those that are not used now: so a fallback is known
//! to answer before it is needed, and the nearest is used again as soon as it does. All of them,
//! and what drives their connections, run on one thread.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::{sleep, timeout};

use crate::debts::Debt;
use crate::endpoint::Endpoint;
use crate::link::Link;
use crate::target::CONNECT_MAX;
use crate::trouble::Trouble;

/// How often an endpoint is asked whether it is there when nobody else asks it anything.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// The least time between two questions, however many operations fail.
const QUESTION_GAP: Duration = Duration::from_millis(20);

/// How long a connection may be silent before it is given up. A server that stands still answers
/// all at once when it goes on, so a connection to it is worth keeping for a while.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(1);

/// The least and the most between two attempts to connect. They are spread, or all processes
/// would come at once to a server that has just started; the most is what bounds how late they
/// are.
pub(crate) const ATTEMPT_GAP: Duration = Duration::from_millis(50);
pub(crate) const ATTEMPT_GAP_MAX: Duration = Duration::from_millis(80);

/// How many times longer it is when we are refused: that does not pass by itself, and each attempt
/// stands in the server's log.
pub(crate) const REFUSED_FACTOR: u32 = 20;

/// How many answers in a row may be late before an endpoint counts as one that does not answer.
const LATE_MAX: u32 = 2;

/// How many debts are paid at once, and how many of them side by side.
const PAYMENTS_MAX: usize = 256;
const PAYMENTS_ABREAST: usize = 32;

/// Watches over an endpoint, for ever.
pub(crate) async fn watch(endpoint: Arc<Endpoint>) {
    loop {
        let link = connect(&endpoint).await;
        endpoint.hold(&link);
        endpoint.listen(&link).await;
        attend(&endpoint, &link).await;
        endpoint.let_go();
        sleep(spread(ATTEMPT_GAP, ATTEMPT_GAP_MAX)).await;
    }
}

async fn connect(endpoint: &Endpoint) -> Link {
    loop {
        let attempt = timeout(CONNECT_MAX, endpoint.open()).await;
        let trouble = match attempt {
            Ok(Ok(link)) => return link,
            Ok(Err(error)) => Trouble::from(error),
            Err(_) => Trouble::TimedOut,
        };
        endpoint.report(&trouble);
        let factor = if trouble.is_refusal() { REFUSED_FACTOR } else { 1 };
        sleep(spread(ATTEMPT_GAP, ATTEMPT_GAP_MAX) * factor).await;
    }
}

/// Asks a connection again and again whether it answers, until it does not.
async fn attend(endpoint: &Endpoint, link: &Link) {
    let mut late = 0;
    while !endpoint.wants_another() {
        match question(endpoint, link).await {
            Answer::InTime => {
                late = 0;
                endpoint.rise();
                pay(endpoint, link).await;
                let _ = timeout(HEARTBEAT, endpoint.nudge.notified()).await;
            }
            Answer::Late => {
                late += 1;
                if late >= LATE_MAX {
                    endpoint.report(&Trouble::TimedOut);
                    endpoint.sink();
                }
            }
            Answer::None(trouble) => {
                endpoint.report(&trouble);
                return;
            }
        }
        sleep(QUESTION_GAP).await;
    }
}

enum Answer {
    InTime,
    /// It came, but whoever reads would not have waited for it.
    Late,
    None(Trouble),
}

async fn question(endpoint: &Endpoint, link: &Link) -> Answer {
    let mut ping = pin!(endpoint.ask(link));
    let in_time = endpoint.read_timeout;
    for attempt in 1..=LATE_MAX {
        if let Ok(answer) = timeout(in_time, &mut ping).await {
            return match answer.map_err(Trouble::from) {
                Err(trouble) if !trouble.is_refusal() => Answer::None(trouble),
                _ if attempt == 1 => Answer::InTime,
                _ => Answer::Late,
            };
        }
    }
    endpoint.report(&Trouble::TimedOut);
    endpoint.sink();
    match timeout(SILENCE_MAX, ping).await {
        Ok(Err(error)) if !Trouble::from(error.clone()).is_refusal() => Answer::None(error.into()),
        Ok(_) => Answer::Late,
        Err(_) => Answer::None(Trouble::TimedOut),
    }
}

/// Removes what should not be there any more. What cannot be removed is owed on, and not read.
async fn pay(endpoint: &Endpoint, link: &Link) {
    loop {
        let due = endpoint.debts.due(PAYMENTS_MAX);
        if due.is_empty() {
            return;
        }
        let payments = stream::iter(due).map(|debt| pay_one(endpoint, link, debt));
        let paid: Vec<bool> = payments.buffer_unordered(PAYMENTS_ABREAST).collect().await;
        if !paid.into_iter().all(|is_paid| is_paid) {
            return;
        }
    }
}

async fn pay_one(endpoint: &Endpoint, link: &Link, debt: Debt) -> bool {
    let removed = timeout(endpoint.write_timeout, link.remove(&debt.names)).await;
    let is_paid = matches!(removed, Ok(Ok(_)));
    if is_paid {
        endpoint.debts.forgive(&debt);
    }
    is_paid
}

/// A span between two, at random.
pub(crate) fn spread(least: Duration, most: Duration) -> Duration {
    let mut random = [0; 4];
    // Without random numbers there is no spread, and nothing worse.
    let _ = SystemRandom::new().fill(&mut random);
    let share = f64::from(u32::from_le_bytes(random)) / f64::from(u32::MAX);
    least + (most - least).mul_f64(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_spread_between_their_bounds() {
        let gaps: Vec<_> = (0..200).map(|_| spread(ATTEMPT_GAP, ATTEMPT_GAP_MAX)).collect();
        assert!(gaps.iter().all(|gap| (ATTEMPT_GAP..=ATTEMPT_GAP_MAX).contains(gap)));
        let early = gaps.iter().filter(|gap| **gap < (ATTEMPT_GAP + ATTEMPT_GAP_MAX) / 2).count();
        assert!((50..150).contains(&early), "{early}");
    }
}
