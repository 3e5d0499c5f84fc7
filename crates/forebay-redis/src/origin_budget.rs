//! Common place of the budgets of origins: a hash of claims for each budget.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::{Allowance, BudgetClaim, BudgetReply, BudgetRequest};
use forebay_engine::{OriginBudgets, TierError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use redis::{RedisResult, Value};

use crate::connection::link::{Link, millis};
use crate::connection::scripts::{self, Call};
use crate::entry::names::budget_name;
use crate::error::{Error, unexpected};
use crate::state::{Redis, failed};

/// Number of values of a reply before the claims of other members.
const REPLY_HEAD: usize = 7;

/// Number of values of one claim.
const CLAIM: usize = 4;

/// Reply to a message of a member.
enum Exchanged {
    Granted(BudgetReply),
    Foreign,
    TooMany,
}

impl OriginBudgets for Redis {
    fn exchange<'a>(
        &'a self,
        budget: &'a str,
        member: &'a str,
        request: BudgetRequest,
        lease: Duration,
    ) -> BoxFuture<'a, Result<BudgetReply, TierError>> {
        async move {
            let tier = &self.0;
            let endpoint = tier.used()?.1;
            let name = budget_name(&tier.namespace, budget);
            let call = call(&name, member, request, lease);
            let run = |link: Arc<Link>| async move { Exchanged::read(link.run(&call).await?) };
            match endpoint.run(endpoint.read_timeout, run).await.map_err(failed)? {
                Exchanged::Granted(reply) => Ok(reply),
                Exchanged::Foreign => Err(failed(Error::ForeignData)),
                Exchanged::TooMany => Err(failed(Error::Busy)),
            }
        }
        .boxed()
    }

    fn leave<'a>(&'a self, budget: &'a str, member: &'a str) -> BoxFuture<'a, ()> {
        async move {
            let tier = &self.0;
            let Ok((_, endpoint)) = tier.used() else { return };
            let name = budget_name(&tier.namespace, budget);
            let total = Allowance::NONE;
            let claim = BudgetClaim { held: total, wanted: total };
            let request = BudgetRequest { asked: total, claim, total, epoch: 0 };
            let call = call(&name, member, request, Duration::ZERO);
            let run = |link: Arc<Link>| async move { link.run(&call).await };
            // If the server does not answer, the claim expires.
            let _ = endpoint.run(endpoint.write_timeout, run).await;
        }
        .boxed()
    }
}

fn call<'a>(name: &'a str, member: &str, request: BudgetRequest, lease: Duration) -> Call<'a> {
    let BudgetRequest { asked, claim, total, epoch } = request;
    let mut call = scripts::BUDGET.call([name]).arg(member);
    for Allowance { slots, rate } in [asked, claim.held, claim.wanted, total] {
        call = call.number(slots).number(rate);
    }
    call.number(millis(lease)).number(epoch)
}

impl Exchanged {
    fn read(value: Value) -> RedisResult<Self> {
        let Value::Array(parts) = value else { return Err(unexpected()) };
        let number = |value: &Value| match value {
            Value::Int(number) => u64::try_from(*number).map_err(|_| unexpected()),
            _ => Err(unexpected()),
        };
        let parts: Vec<u64> = parts.iter().map(number).collect::<RedisResult<_>>()?;
        match &parts[..] {
            [1] => Ok(Self::Foreign),
            [2] => Ok(Self::TooMany),
            [0, slots, rate, position, round, epoch, is_complete, ..] => {
                let granted = Allowance { slots: *slots, rate: *rate };
                let (claims, []) = parts[REPLY_HEAD..].as_chunks::<CLAIM>() else {
                    return Err(unexpected());
                };
                let others = claims.iter().map(|[held, held_rate, wanted, wanted_rate]| {
                    let held = Allowance { slots: *held, rate: *held_rate };
                    let wanted = Allowance { slots: *wanted, rate: *wanted_rate };
                    BudgetClaim { held, wanted }
                });
                Ok(Self::Granted(BudgetReply {
                    granted,
                    others: others.collect(),
                    position: usize::try_from(*position).unwrap_or_default(),
                    round: *round,
                    epoch: *epoch,
                    is_complete: *is_complete == 1,
                }))
            }
            _ => Err(unexpected()),
        }
    }
}
