//! Minimal client of the Redis protocol.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Maximum wait for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// Answer of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Simple string, such as `OK`.
    Text(String),
    /// Integer.
    Number(i64),
    /// Bulk string.
    Bytes(Vec<u8>),
    /// Null.
    Nil,
    /// Array.
    All(Vec<Self>),
}

impl Reply {
    /// Any answer as text.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Nil => String::new(),
            Self::All(all) => all.iter().map(Self::text).collect::<Vec<_>>().join(" "),
        }
    }
}

pub(super) async fn ask<A: AsRef<[u8]>>(
    address: SocketAddr,
    command: &[A],
) -> anyhow::Result<Reply> {
    let asking = async {
        let mut stream = BufReader::new(TcpStream::connect(address).await?);
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for argument in command {
            let argument = argument.as_ref();
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        stream.write_all(&bytes).await?;
        read(&mut stream).await
    };
    timeout(ANSWER_WAIT, asking).await.context("no answer")?
}

async fn read(stream: &mut BufReader<TcpStream>) -> anyhow::Result<Reply> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let Some(kind) = line.chars().next() else { bail!("the connection ended") };
    let rest = line[kind.len_utf8()..].trim_end();
    match kind {
        '+' => Ok(Reply::Text(rest.to_owned())),
        '-' => bail!("{rest}"),
        ':' => Ok(Reply::Number(rest.parse()?)),
        '$' if rest.starts_with('-') => Ok(Reply::Nil),
        '$' => {
            let mut bytes = vec![0; rest.parse::<usize>()? + 2];
            stream.read_exact(&mut bytes).await?;
            bytes.truncate(bytes.len() - 2);
            Ok(Reply::Bytes(bytes))
        }
        '*' => {
            let mut all = Vec::new();
            for _ in 0..rest.parse::<usize>().unwrap_or(0) {
                all.push(Box::pin(read(stream)).await?);
            }
            Ok(Reply::All(all))
        }
        other => bail!("an answer that begins with {other:?}"),
    }
}
