//! Checks of the admin listener: a separate address, and a token off the loopback.

use super::ResolvedListener;
use crate::config::ListenAddress;
use crate::config::bounded_file::read_bounded;
use crate::config::file::File;
use crate::config::options;
use crate::config::provenance::Provenance;
use crate::config::reader::ListenerRole;
use forebay_tls::server::ClientCertificates;
use std::net::SocketAddr;
use std::path::Path;

/// Maximum size of a token file in bytes; a larger file is not a token.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Reports an admin address that clients are served on as well.
pub(super) fn check_separate(
    file: &File,
    listeners: &[ResolvedListener],
    admin: SocketAddr,
    provenance: &mut Provenance<'_>,
) {
    let mut addresses = listeners.iter().filter_map(|listener| listener.address.tcp());
    if !addresses.any(|address| collide(address, admin)) {
        return;
    }
    // The error is reported for the option that was typed.
    let admin_typed = file.top.value(options::ADMIN.spec.name).is_some();
    let name = if admin_typed { options::ADMIN.spec.name } else { options::LISTEN.spec.name };
    let message = format!("contains the address of the admin listener, {admin}; use another one");
    let message = if admin_typed {
        format!("{admin} is already in `listen`; the admin listener needs its own address")
    } else {
        message
    };
    provenance.refuse(&file.top, name, message);
}

/// Returns whether the operating system would refuse to listen on both addresses.
pub(super) fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let wildcard = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0
        && one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (wildcard || one.ip() == other.ip())
}

/// Reads the token file; reports one that is missing, unreadable or invalid.
pub(super) fn token(
    file: &File,
    folder: &Path,
    admin: Option<SocketAddr>,
    provenance: &mut Provenance<'_>,
) -> Option<String> {
    let name = options::ADMIN_TOKEN_FILE.spec.name;
    let Some(path) = provenance.read(&file.top, &options::ADMIN_TOKEN_FILE) else {
        if file.top.value(name).is_none() {
            required_off_loopback(file, admin, provenance);
            provenance.derived(file.top.path_of(name), "none");
        }
        return None;
    };
    let path = folder.join(path);
    let content = match read_bounded(&path, TOKEN_BYTES_MAX) {
        Ok(content) => content,
        Err(error) => {
            provenance.refuse(
                &file.top,
                name,
                format!("{} cannot be read: {error}", path.display()),
            );
            return None;
        }
    };
    let token = content.trim_ascii();
    if token.is_empty() {
        provenance.refuse(&file.top, name, format!("{} is empty", path.display()));
        return None;
    }
    // The token is sent after "Bearer " (RFC 6750 section 2.1: no white space).
    if !token.iter().all(u8::is_ascii_graphic) {
        let message = format!("{} must hold one word of visible ASCII", path.display());
        provenance.refuse(&file.top, name, message);
        return None;
    }
    String::from_utf8(token.to_vec()).ok()
}

/// Reports further admin listeners that other hosts reach, without a token or a client certificate.
pub(super) fn check_further(
    file: &File,
    listeners: &[ResolvedListener],
    token: Option<&str>,
    provenance: &mut Provenance<'_>,
) {
    // The tables are the last of the listeners.
    let tables = listeners.iter().rev().zip(file.listeners.iter().rev());
    for (listener, section) in tables.filter(|(listener, _)| listener.role == ListenerRole::Admin) {
        // The address of an inherited socket is not known here.
        let is_local = match &listener.address {
            ListenAddress::Tcp(address) => address.ip().is_loopback(),
            ListenAddress::Unix(_) => true,
            ListenAddress::Inherited(_) => false,
        };
        let has_certificate = listener.client_certificates == ClientCertificates::Required;
        if !is_local && !has_certificate && token.is_none() {
            let message = format!(
                "{} is not a loopback address, so other hosts could purge the cache; set \
                 `admin_token_file`, or `client_certificates = \"required\"`",
                listener.address
            );
            provenance.refuse(section, options::LISTENER_ADDRESS.spec.name, message);
        }
    }
}

fn required_off_loopback(file: &File, admin: Option<SocketAddr>, provenance: &mut Provenance<'_>) {
    let Some(admin) = admin.filter(|admin| !admin.ip().is_loopback()) else { return };
    let message = format!(
        "{admin} is not a loopback address, so other hosts could purge the cache; set \
         `admin_token_file`"
    );
    provenance.refuse(&file.top, options::ADMIN.spec.name, message);
}
