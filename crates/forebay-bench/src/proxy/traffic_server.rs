//! Apache Traffic Server as a cache with one network thread on one core.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::servers::{Ground, Subject, TRAFFIC_SERVER, free_address, started};

/// Mark of a hit in the verbose `Via` of a response: the lookup found a fresh entry.
const HIT: (&str, &str) = ("via", "cCHp");

/// One network thread; verbose `Via`; against stampedes: readers of an arriving response, and
/// requests that wait for it as long as an origin may take.
const SETTINGS: &str = "\
CONFIG proxy.config.admin.user_id STRING #-1
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 1
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.http.wait_for_cache INT 1
CONFIG proxy.config.http.insert_response_via_str INT 3
CONFIG proxy.config.http.keep_alive_no_activity_timeout_in INT 300
CONFIG proxy.config.cache.ram_cache.size INT 268435456
CONFIG proxy.config.cache.enable_read_while_writer INT 1
CONFIG proxy.config.http.background_fill_active_timeout INT 0
CONFIG proxy.config.http.background_fill_completed_threshold FLOAT 0.0
CONFIG proxy.config.http.cache.open_write_fail_action INT 5
CONFIG proxy.config.http.cache.max_open_read_retries INT 600
CONFIG proxy.config.http.cache.open_read_retry_time INT 10
";

impl Ground {
    /// Apache Traffic Server with its store on disk and its cache in memory.
    pub(crate) fn traffic_server(&self) -> Result<Subject> {
        let (folder, address) = (self.folder.join("traffic-server"), free_address()?);
        for name in ["etc", "log", "run", "cache"] {
            std::fs::create_dir_all(folder.join(name))?;
        }
        let (place, origin) = (folder.display(), self.origin);
        let ports = format!(
            "CONFIG proxy.config.http.server_ports STRING {}:ip-in={}\n",
            address.port(),
            address.ip()
        );
        let settings = format!("{SETTINGS}{ports}");
        let etc = folder.join("etc");
        std::fs::write(etc.join("records.config"), &settings)?;
        std::fs::write(etc.join("remap.config"), format!("map / http://{origin}/\n"))?;
        std::fs::write(etc.join("storage.config"), format!("{place}/cache 512M\n"))?;
        let allowed = Path::new("/etc/trafficserver/ip_allow.yaml");
        std::fs::copy(allowed, etc.join("ip_allow.yaml")).context("ip_allow.yaml")?;
        let layout = folder.join("runroot.yaml");
        std::fs::write(
            &layout,
            format!(
                "prefix: {place}\nexec_prefix: /usr\nbindir: /usr/bin\nsbindir: /usr/sbin\n\
                 sysconfdir: {place}/etc\ndatadir: /usr/share/trafficserver\n\
                 libexecdir: /usr/lib/trafficserver/modules\nlocalstatedir: {place}/run\n\
                 runtimedir: {place}/run\nlogdir: {place}/log\ncachedir: {place}/cache\n"
            ),
        )?;
        let mut command = self.pinned("/usr/bin/traffic_server");
        command.arg(format!("--run-root={}", layout.display()));
        Ok(started(TRAFFIC_SERVER, address, Some(HIT), command)?.configured(settings))
    }
}
