//! nginx as a cache: one worker, no log, everything that it writes in a folder of ours.

use std::net::SocketAddr;
use std::path::Path;

/// Whether nginx keeps the files of its cache open between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenFiles {
    Reopened,
    Kept,
}

/// A complete configuration for the foreground.
pub(super) fn configuration(
    folder: &Path,
    listen: SocketAddr,
    origin: SocketAddr,
    open_files: OpenFiles,
) -> String {
    let folder = folder.display();
    let kept = match open_files {
        OpenFiles::Reopened => "",
        OpenFiles::Kept => {
            "open_file_cache max=100 inactive=1h;\n    open_file_cache_valid 1h;\n    "
        }
    };
    format!(
        "daemon off;
worker_processes 1;
pid {folder}/pid;
error_log {folder}/errors warn;
events {{ worker_connections 512; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_timeout 300s;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/client;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    proxy_cache_path {folder}/cache keys_zone=hits:1m inactive=1h max_size=64m use_temp_path=off;
    {kept}server {{
        listen {listen};
        location / {{
            proxy_pass http://{origin};
            proxy_cache hits;
            add_header X-Cache $upstream_cache_status;
        }}
    }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_rows_differ_in_the_open_files_alone() {
        let [listen, origin] = ["127.0.0.1:1", "127.0.0.1:2"].map(|text| text.parse().unwrap());
        let write = |open| configuration(Path::new("there"), listen, origin, open);
        let (plain, kept) = (write(OpenFiles::Reopened), write(OpenFiles::Kept));
        let more: Vec<&str> = kept.lines().filter(|line| !plain.contains(line.trim())).collect();
        assert_eq!(more.len(), 2, "{more:?}");
        assert!(more.iter().all(|line| line.contains("open_file_cache")));
        assert_eq!(plain.matches('{').count(), plain.matches('}').count());
        assert!(plain.contains("listen 127.0.0.1:1;"));
        assert!(plain.contains("proxy_pass http://127.0.0.1:2;"));
    }
}
