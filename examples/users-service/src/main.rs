//! The command `users-service [FILE] [ADDRESS]`, which serves the users of an SQLite file.
#![expect(clippy::print_stdout, reason = "a command-line program")]

use std::path::PathBuf;

use anyhow::anyhow;
use tokio::net::TcpListener;
use users_service::database::{Database, User};
use users_service::users::Users;
use users_service::web::Service;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = PathBuf::from(arguments.next().unwrap_or_else(|| "users.sqlite".to_owned()));
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let failed = |error| anyhow!("{}: {error}", file.display());
    let database = Database::open(&file).map_err(failed)?;
    for (id, name) in (1..).zip(["Ada", "Grace", "Radia"]) {
        let user = User { id, name: name.to_owned(), team: "engines".to_owned(), version: 0 };
        database.write(user).await.map_err(failed)?;
    }
    let users = Users::new(database.clone()).map_err(failed)?;
    let listener = TcpListener::bind(&address).await?;
    println!("users-service ready: http://{}/users/1", listener.local_addr()?);
    tokio::select! {
        ended = Service { users, database }.serve(listener) => match ended? {},
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
    }
}
