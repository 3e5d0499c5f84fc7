//! The rules of the admin listener: an address of its own, and a token off the loopback.

use super::read_bounded;
use crate::config::file::File;
use crate::config::options;
use crate::config::provenance::Provenance;
use std::net::SocketAddr;
use std::path::Path;

/// A token that is longer is not a token but some other file, such as a key or a log.
const TOKEN_BYTES_MAX: u64 = 4096;

/// Reports an admin address that is also one of the clients'.
pub(super) fn stands_apart(
    file: &File,
    (listen, admin): (&[SocketAddr], SocketAddr),
    provenance: &mut Provenance<'_>,
) {
    if !listen.iter().any(|address| collide(*address, admin)) {
        return;
    }
    // The one that was typed is the one to change.
    let admin_typed = file.top.value(options::ADMIN.spec.name).is_some();
    let name = if admin_typed { options::ADMIN.spec.name } else { options::LISTEN.spec.name };
    let message = format!("takes the address of the admin listener, {admin}; each needs its own");
    let message = if admin_typed {
        format!("{admin} is taken by `listen`; the admin listener needs an address of its own")
    } else {
        message
    };
    provenance.refuse(&file.top, name, message);
}

/// Whether the system would refuse to listen on both.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let wildcard = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0
        && one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (wildcard || one.ip() == other.ip())
}

/// Reads the token; reports one that is missing, unreadable or no token.
pub(super) fn token(
    file: &File,
    (folder, admin): (&Path, Option<SocketAddr>),
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
    // It travels in a header field behind "Bearer " (RFC 6750 section 2.1: no white space).
    if !token.iter().all(u8::is_ascii_graphic) {
        let message = format!("{} must hold one word of visible ASCII", path.display());
        provenance.refuse(&file.top, name, message);
        return None;
    }
    String::from_utf8(token.to_vec()).ok()
}

fn required_off_loopback(file: &File, admin: Option<SocketAddr>, provenance: &mut Provenance<'_>) {
    let Some(admin) = admin.filter(|admin| !admin.ip().is_loopback()) else { return };
    let message = format!(
        "{admin} is not a loopback address, so whoever reaches it could purge the cache; \
         set `admin_token_file`"
    );
    provenance.refuse(&file.top, options::ADMIN.spec.name, message);
}
