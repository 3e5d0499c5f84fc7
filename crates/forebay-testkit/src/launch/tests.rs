use std::os::unix::process::ExitStatusExt;

use super::*;

const END_WAIT: Duration = Duration::from_secs(10);

fn shell(script: &str) -> Launch {
    Launch::binary("/bin/sh").args(["-c", script])
}

#[tokio::test]
async fn reads_the_ready_line_and_captures_the_rest() {
    let script = "echo early; echo \"forebay ready: http://127.0.0.1:8080 (admin \
                  http://127.0.0.1:8081)\"; echo \"$WORD\" >&2; exec tail -f /dev/null";
    let launched = shell(script).env("WORD", "to stderr").start().await.unwrap();
    assert_eq!(launched.address(), SocketAddr::from(([127, 0, 0, 1], 8080)));
    assert_eq!(launched.admin(), Some(SocketAddr::from(([127, 0, 0, 1], 8081))));
    assert_eq!(launched.stdout()[0], "early");
    assert_eq!(launched.wait_stderr("stderr").await.unwrap(), "to stderr");
}

#[tokio::test]
async fn signals_reach_the_process() {
    let script = "trap 'echo hup >&2' HUP; echo 'forebay ready: http://127.0.0.1:1'; \
                  while :; do sleep 0.05; done";
    // A process that ignores SIGHUP, as under `nohup`, passes that on to its children.
    let hearing = ["--default-signal=HUP", "/bin/sh", "-c", script];
    let mut launched = Launch::binary("env").args(hearing).start().await.unwrap();
    launched.signal(Signal::Hup).await.unwrap();
    launched.wait_stderr("hup").await.unwrap();
    assert_eq!(launched.admin(), None);
    let error = launched.wait_exit(Duration::ZERO).await.unwrap_err().to_string();
    assert!(error.contains("runs on"), "{error}");
    launched.signal(Signal::Term).await.unwrap();
    assert_eq!(launched.wait_exit(END_WAIT).await.unwrap().signal(), Some(15));
    assert!(launched.signal(Signal::Term).await.is_err());
}

#[tokio::test]
async fn a_start_that_fails_shows_why() {
    let error = shell("echo 'no such file' >&2; exit 3").start().await.unwrap_err();
    let shown = format!("{error:#}");
    assert!(shown.contains("no such file") && shown.contains("exit status: 3"), "{shown}");
    assert!(Launch::binary("/no/such/binary").start().await.is_err());
    let finished = shell("echo out; echo err >&2; exit 4").finish().await.unwrap();
    assert_eq!((finished.status.code(), finished.stdout.len()), (Some(4), 1));
    assert_eq!(finished.stderr, ["err"]);
}

#[tokio::test]
async fn the_process_ends_with_its_owner() {
    let launched = shell("echo 'forebay ready: http://127.0.0.1:1'; exec tail -f /dev/null");
    let launched = launched.start().await.unwrap();
    let lines = launched.stderr.clone();
    drop(launched);
    // The exit of the process closes its pipes.
    assert!(lines.ended(END_WAIT).await);
}

#[test]
fn ready_lines() {
    let one = "forebay ready: http://127.0.0.1:3000";
    let (address, admin) = parse_ready(one).unwrap();
    assert_eq!((address.port(), admin), (3000, None));
    let many = "forebay ready: http://127.0.0.1:1, http://[::1]:2 (admin http://[::1]:3)";
    let (address, admin) = parse_ready(many).unwrap();
    assert_eq!((address.port(), admin.unwrap().port()), (1, 3));
    for bad in ["forebay ready", "forebay ready: http://localhost:1", "forebay ready: 127.0.0.1:1"]
    {
        assert!(parse_ready(bad).is_err(), "{bad}");
    }
}
