use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::*;
use crate::clock::SteppedClock;
use crate::launch::Launch;
use crate::origin::{Answer, Origin};

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

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios").join(name)
}

#[tokio::test]
async fn scenarios_that_hold() {
    assert_eq!(run_folder(folder("hold"), &Splice).await.unwrap(), 5);
}

/// Runs files that must fail. Each ends with a comment for each expected fault: its line and a part
/// of its text.
#[tokio::test]
async fn a_failing_scenario_reports_line_and_cause() {
    let files = scenario_files(&folder("fail")).unwrap();
    assert_eq!(files.len(), 11);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let wanted: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("#! ")).collect();
        let failure = run_file(&file, &Splice).await.expect_err(&file.display().to_string());
        let shown = failure.to_string();
        assert_eq!(failure.faults.len(), wanted.len(), "{shown}");
        for (line, wanted) in shown.lines().zip(wanted) {
            let (number, part) = wanted.split_once(": ").unwrap();
            let place = format!("{}:{number}: ", file.display());
            assert!(line.starts_with(&place) && line.contains(part), "{line}\nwanted {wanted}");
        }
    }
}

#[tokio::test]
async fn a_folder_fails_with_all_its_failures() {
    let failures = run_folder(folder("fail"), &Splice).await.unwrap_err();
    assert_eq!(failures.0.len(), 11);
    assert!(format!("{failures:?}").starts_with("11 scenarios failed:\n"));
    for (place, part) in [("no-such-folder", "No such file"), ("..", "no .scn file")] {
        let failures = run_folder(folder(place), &Splice).await.unwrap_err();
        assert!(failures.to_string().contains(part), "{failures}");
    }
    assert!(run_file(folder("none.scn"), &Splice).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_barrier_that_stays_closed_is_named() {
    let text = "# Title\nbarrier both 2\norigin o1 {\n}\nclient c1 -> o1 {\nsignal both\n\
                await both\n}\n";
    let failure = run_text("t.scn", text, &Splice).await.unwrap_err();
    let wanted = "t.scn:7: c1: waited 10s for barrier both; shut barriers: both has 1 of 2 \
                  signals: deadline has elapsed";
    assert_eq!(failure.to_string(), wanted);
}

/// Front end in another process, with an admin listener.
struct Process(SocketAddr);

impl Front for Process {
    async fn start(&self, origin: SocketAddr, _: &[Setting]) -> anyhow::Result<Running> {
        let ready = format!("forebay ready: http://{origin} (admin http://{})", self.0);
        let script = ["-c", "echo \"$0\"; exec tail -f /dev/null", &ready];
        let launched = Launch::binary("/bin/sh").args(script).start().await?;
        let admin = launched.admin().unwrap();
        Ok(Running::new(launched.address(), launched).with_admin(admin))
    }
}

#[tokio::test]
async fn counters_are_read_from_the_admin_listener_until_they_hold() {
    let later =
        Answer::ok("# TYPE hits counter\nhits_total{via=\"a\"} 3\nhits_total{via=\"b\"} 4\n");
    let answers = vec![Answer::ok("# TYPE hits counter\n"), later];
    let admin = Origin::in_turn(answers).await.unwrap();
    let text = "# Title\norigin o1 {\n}\nforebay f1 -> o1 {\n}\nclient c1 -> f1 {\n}\n\
                after {\nexpect f1 metric hits_total = 7\n}\n";
    run_text("t.scn", text, &Process(admin.address())).await.unwrap();
    assert_eq!(admin.requests_to("/metrics"), 2);
}

#[test]
fn patterns_are_reproducible_and_not_periodic_in_powers_of_two() {
    let body = script::pattern(4_096);
    assert_eq!((body.len(), body[250], body[251]), (4_096, 250, 0));
    assert_ne!(body[..1_024], body[1_024..2_048]);
    assert_eq!(Duration::from_millis(1), date::duration("1ms").unwrap());
}
