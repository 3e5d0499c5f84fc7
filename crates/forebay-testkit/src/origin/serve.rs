//! Connections of the origin: read a request, call the behaviour, send the answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::answer::{Answer, Before, Cut, Framing, Kind, Message, reason};
use super::recorder::Recorder;
use super::{BODY_KEPT, Received};
use crate::gate::Gate;
use crate::pause;
use crate::wire::{self, BodyReader, Wire, split_head};

type Behaviour = dyn Fn(&Received) -> Answer + Send + Sync;

/// Accepts connections until the task is aborted, which ends the connections too.
pub(super) async fn accept(
    listener: TcpListener,
    recorder: Arc<Recorder>,
    behaviour: Arc<Behaviour>,
) {
    let mut connections = JoinSet::new();
    // An accept fails for lack of file descriptors; then clients are refused.
    while let Ok((stream, _)) = listener.accept().await {
        let number = recorder.connected();
        let Ok(wire) = Wire::new(stream) else { continue };
        connections.spawn(serve(wire, number, recorder.clone(), behaviour.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(wire: Wire, number: u64, recorder: Arc<Recorder>, behaviour: Arc<Behaviour>) {
    let mut kept_alive = Some(wire);
    while let Some(mut wire) = kept_alive.take() {
        let mut received = match read(&mut wire).await {
            Ok(Some(received)) => received,
            Ok(None) => return,
            Err(_) => return recorder.malformed(),
        };
        received.connection = number;
        let mut answering = recorder.enter(&mut received);
        if !received.complete {
            return;
        }
        match play(behaviour(&received), wire, &received).await {
            Ok(again) => kept_alive = again,
            Err(_) => answering.abandoned = true,
        }
    }
}

/// Reads a request; `None` if the client closed instead.
async fn read(wire: &mut Wire) -> io::Result<Option<Received>> {
    let Some(raw_head) = wire.head().await? else { return Ok(None) };
    let (first, fields) = split_head(&raw_head);
    let mut words = first.splitn(3, ' ').map(str::to_owned);
    let (Some(method), Some(target), Some(version)) = (words.next(), words.next(), words.next())
    else {
        return Err(io::Error::other(format!("{first:?} is not a request line")));
    };
    let expects = fields.first("expect").is_some_and(|v| v.eq_ignore_ascii_case("100-continue"));
    if expects && !wire.has_more() {
        wire.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let framing = wire::Framing::of(&fields, wire::Framing::Length(0));
    let mut body = BodyReader::new(framing, BODY_KEPT);
    body.read(wire, u64::MAX).await;
    Ok(Some(Received {
        serial: 0,
        connection: 0,
        method,
        target,
        version,
        fields,
        raw_head,
        body: Bytes::copy_from_slice(body.kept()),
        body_length: body.length,
        complete: body.ended_cleanly(),
    }))
}

/// Sends an answer. Returns the wire if the connection stays open; an error if the client closed.
async fn play(answer: Answer, mut wire: Wire, to: &Received) -> io::Result<Option<Wire>> {
    for before in &answer.before {
        play_before(before, &mut wire).await?;
    }
    match answer.kind {
        Kind::Message(message) => play_message(&message, wire, to).await,
        Kind::Raw(bytes) => {
            wire.write(&bytes).await?;
            wire.finish().await?;
            Ok(None)
        }
        Kind::Hang => unless_gone(&mut wire, std::future::pending()).await.map(|()| None),
        Kind::End(cut) => end(wire, cut).await,
    }
}

async fn play_before(before: &Before, wire: &mut Wire) -> io::Result<()> {
    match before {
        Before::Delay(delay) => unless_gone(wire, tokio::time::sleep(*delay)).await,
        Before::DelayExactly(delay) => unless_gone(wire, pause::exactly(*delay)).await,
        Before::Wait(gate) => unless_gone(wire, gate.wait()).await,
        Before::Arrive(gate) => {
            gate.arrive();
            Ok(())
        }
        Before::Interim(status, fields) => {
            let mut head = format!("HTTP/1.1 {status} {}\r\n", reason(*status)).into_bytes();
            fields.write_to(&mut head);
            head.extend_from_slice(b"\r\n");
            wire.write(&head).await
        }
    }
}

async fn play_message(
    message: &Message,
    mut wire: Wire,
    to: &Received,
) -> io::Result<Option<Wire>> {
    wire.write(&message.head()).await?;
    let bodiless = to.method == "HEAD" || matches!(message.status, 100..=199 | 204 | 304);
    if !bodiless && let Some(cut) = play_body(message, &mut wire).await? {
        return end(wire, cut).await;
    }
    if closes(message, to) { end(wire, Cut::Close).await } else { Ok(Some(wire)) }
}

/// Returns whether the connection ends after this exchange (RFC 9112, section 9.3).
fn closes(message: &Message, to: &Received) -> bool {
    let asks = |value: Option<&str>| value.is_some_and(|v| v.eq_ignore_ascii_case("close"));
    message.framing == Framing::UntilClose
        || message.version == "HTTP/1.0"
        || to.version == "HTTP/1.0"
        || asks(message.fields.first("connection"))
        || asks(to.fields.first("connection"))
}

/// Sends the body piece by piece; returns the end of the connection if the body is truncated.
async fn play_body(message: &Message, wire: &mut Wire) -> io::Result<Option<Cut>> {
    let mut sent = 0;
    for stop in stops(message) {
        let piece = &message.body[sent..stop.offset];
        sent = stop.offset;
        write_piece(piece, message.framing, wire).await?;
        match stop.then {
            Then::Pause(pause) => unless_gone(wire, tokio::time::sleep(pause)).await?,
            Then::Wait(gate) => unless_gone(wire, gate.wait()).await?,
            Then::Cut(cut) => return Ok(Some(cut)),
        }
    }
    write_piece(&message.body[sent..], message.framing, wire).await?;
    if message.framing == Framing::Chunked {
        let mut end = b"0\r\n".to_vec();
        message.trailers.write_to(&mut end);
        end.extend_from_slice(b"\r\n");
        wire.write(&end).await?;
    }
    Ok(None)
}

async fn write_piece(piece: &[u8], framing: Framing, wire: &mut Wire) -> io::Result<()> {
    if piece.is_empty() {
        // An empty chunk would end the body.
        return Ok(());
    }
    if framing != Framing::Chunked {
        return wire.write(piece).await;
    }
    let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
    chunk.extend_from_slice(piece);
    chunk.extend_from_slice(b"\r\n");
    wire.write(&chunk).await
}

/// Offset in the body with an action.
struct Stop {
    offset: usize,
    then: Then,
}

enum Then {
    Pause(Duration),
    Wait(Gate),
    Cut(Cut),
}

/// Actions in the order of their offsets; at one offset: pause, wait, cut.
fn stops(message: &Message) -> Vec<Stop> {
    let length = message.body.len();
    let mut stops = Vec::new();
    if let Some((pieces, pause)) = message.drip {
        let share = |piece: usize| length.saturating_mul(piece) / pieces;
        let pauses = (1..pieces).map(|piece| (share(piece), Then::Pause(pause)));
        stops.extend(pauses.map(|(offset, then)| Stop { offset, then }));
    }
    for (offset, gate) in &message.holds {
        stops.push(Stop { offset: (*offset).min(length), then: Then::Wait(gate.clone()) });
    }
    if let Some((offset, cut)) = message.cut {
        stops.push(Stop { offset: offset.min(length), then: Then::Cut(cut) });
    }
    stops.sort_by_key(|stop| stop.offset);
    stops
}

/// Waits, but fails when the client closes.
async fn unless_gone(wire: &mut Wire, wait: impl Future<Output = ()>) -> io::Result<()> {
    tokio::select! {
        () = wait => Ok(()),
        () = wire.gone() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

async fn end(mut wire: Wire, cut: Cut) -> io::Result<Option<Wire>> {
    match cut {
        Cut::Close => wire.finish().await?,
        Cut::Reset => wire.reset()?,
    }
    Ok(None)
}
