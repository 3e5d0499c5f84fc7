use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::*;
use crate::clock::SteppedClock;

/// Front end that copies bytes between client and origin.
struct Splice;

struct Ended(AbortHandle);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Front for Splice {
    async fn start(&self, origin: SocketAddr, settings: &[Setting]) -> anyhow::Result<Running> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut origin = TcpStream::connect(origin).await?;
                    copy_bidirectional(&mut client, &mut origin).await
                });
            }
        });
        let running = Running::new(address, Ended(task.abort_handle()));
        let Some(setting) = settings.first() else { return Ok(running) };
        match (setting.key.as_str(), setting.value.as_str()) {
            ("clock", "stepped") => {
                Ok(running.with_clock(Arc::new(SteppedClock::starting_at(784_111_777))))
            }
            ("metrics", name) => {
                let text = format!("{}{{via=\"a\"}} 2\n", name.trim_matches('"'));
                Ok(running.with_metrics(move || text.clone()))
            }
            _ => anyhow::bail!("line {}: unknown setting `{setting}`", setting.line),
        }
    }
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios").join(folder);
    std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect()
}

#[tokio::test]
async fn scenarios_that_hold() {
    let files = files("hold");
    assert_eq!(files.len(), 5);
    for file in files {
        run_file(&file, &Splice).await.unwrap();
    }
}

/// Runs files that must fail. Each ends with a comment for each expected fault: its line and a part
/// of its text.
#[tokio::test]
async fn a_failing_scenario_reports_line_and_cause() {
    let files = files("fail");
    assert_eq!(files.len(), 12);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let wanted: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("#! ")).collect();
        let shown = run_file(&file, &Splice).await.expect_err(&text).to_string();
        assert_eq!(shown.lines().count(), wanted.len(), "{shown}");
        for (line, wanted) in shown.lines().zip(wanted) {
            let (number, part) = wanted.split_once(": ").unwrap();
            let place = format!("{}:{number}: ", file.display());
            assert!(line.starts_with(&place) && line.contains(part), "{line}\nwanted {wanted}");
        }
    }
}
