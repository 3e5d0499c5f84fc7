use super::*;
use crate::origin::{Answer, Origin};

#[tokio::test]
async fn broken_chunks_are_seen() {
    for (body, came, clean) in [
        ("2;ext=1\r\nok\r\n0\r\nX-T: 1\r\n\r\n", "ok", true),
        ("2\r\nok\r\n", "ok", false),
        ("2\r\nok\r\n0\r\n", "ok", false),
        ("2\r\nokay\r\n", "ok", false),
        ("zz\r\nok", "", false),
        ("ffffffffffffffff\r\nok", "ok", false),
    ] {
        let raw = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let origin = Origin::always(Answer::raw(raw)).await.unwrap();
        let mut client = Client::connect(origin.address()).await.unwrap();
        let reply = client.ask(&Request::get("/")).await.unwrap();
        assert_eq!((reply.text().as_ref(), reply.ended_cleanly()), (came, clean), "{body:?}");
    }
}
