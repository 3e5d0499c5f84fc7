//! Resolved `[tls.acme]`, and the flags `--domain` and `--agree-to-terms`.

use super::{ResolvedSite, read_bounded};
use crate::config::file::{AcmeFile, File, Section, TlsFile};
use crate::config::host::HostPattern;
use crate::config::options;
use crate::config::problem::{Place, Problems};
use crate::config::provenance::Provenance;
use crate::config::reader::is_dns_name;
use crate::config::table::Table;
use crate::config::typed::{Raw, Typed};
use data_encoding::BASE64URL_NOPAD;
use forebay_tls::acme::{AcmeSettings, ExternalAccount, LETS_ENCRYPT, check_roots};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Maximum number of names with automatic certificates, as of certificates in files.
const NAMES_MAX: usize = 4_096;

/// Maximum size of the file of an external account's key in bytes.
const KEY_BYTES_MAX: u64 = 4_096;

/// Page of the terms of the default authority.
const LETS_ENCRYPT_TERMS: &str = "https://letsencrypt.org/repository/";

/// Folder of the default storage in the home directory.
const HOME_STATE: &str = ".local/state/forebay";

/// Resolves `[tls.acme]`. Without `names`, the sites name the certificates.
pub(super) fn acme(
    typed: &AcmeFile,
    sites: Option<&[ResolvedSite]>,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<AcmeSettings> {
    let section = &typed.acme;
    let agreed = provenance.read(section, &options::ACME_AGREE_TO_TERMS);
    let names = names(section, sites, provenance);
    let contact = provenance.read(section, &options::ACME_CONTACT);
    let directory = provenance.read(section, &options::ACME_DIRECTORY);
    let ca = provenance.read(section, &options::ACME_CA).map(|ca| folder.join(ca));
    if let Some(Err(sentence)) = ca.as_deref().map(check_roots) {
        provenance.refuse(section, options::ACME_CA.spec.name, sentence);
    }
    let storage = storage(section, folder, provenance);
    let challenges = provenance.read(section, &options::ACME_CHALLENGES);
    let profile = provenance.read(section, &options::ACME_PROFILE);
    let account = typed.external_account.as_ref();
    let account = account.map(|account| external_account(account, folder, provenance));
    let directory = directory?;
    if agreed == Some(false) {
        let message = not_agreed(&directory);
        let names = section.value(options::ACME_NAMES.spec.name);
        // With `--domain`, the flag is what is missing.
        match names.filter(|names| names.place == Place::Flag) {
            Some(flag) => provenance.problems.report(Place::Flag, &flag.path, message),
            None => provenance.refuse(section, options::ACME_AGREE_TO_TERMS.spec.name, message),
        }
    }
    let external_account = match account {
        Some(account) => Some(account?),
        None => None,
    };
    Some(AcmeSettings {
        directory,
        ca,
        names: names?,
        contact: contact?,
        storage: storage?,
        challenges: challenges?,
        profile,
        external_account,
    })
}

/// Message for an operator who has not agreed to the terms.
fn not_agreed(directory: &str) -> String {
    let terms = match directory {
        LETS_ENCRYPT => format!("Let's Encrypt ({LETS_ENCRYPT_TERMS})"),
        other => format!(
            "the certificate authority at {other} (this URL returns the address of the terms)"
        ),
    };
    format!(
        "automatic certificates need your agreement to the terms of service of {terms}: add \
         --agree-to-terms, or `agree_to_terms = true` in [tls.acme]"
    )
}

fn names(
    section: &Section,
    sites: Option<&[ResolvedSite]>,
    provenance: &mut Provenance<'_>,
) -> Option<Vec<String>> {
    let name = options::ACME_NAMES.spec.name;
    let typed = section.value(name).is_some();
    let names: BTreeSet<String> = if typed {
        provenance.read(section, &options::ACME_NAMES)?.into_iter().collect()
    } else {
        let exact = |host: &HostPattern| match host {
            HostPattern::Exact(host) if is_dns_name(host) => Some(host.clone()),
            _ => None,
        };
        sites?.iter().flat_map(|site| site.hosts.iter().filter_map(exact)).collect()
    };
    let message = match names.len() {
        0 => Some("no name to get a certificate for: set `names`, or `hosts` of a site".to_owned()),
        1..=NAMES_MAX => None,
        count => Some(format!("has {count} names, which is more than the maximum of {NAMES_MAX}")),
    };
    if let Some(message) = message {
        provenance.refuse(section, name, message);
        return None;
    }
    let names: Vec<String> = names.into_iter().collect();
    if !typed {
        provenance.derived(section.path_of(name), (options::ACME_NAMES.reader.show)(&names));
    }
    Some(names)
}

fn storage(section: &Section, folder: &Path, provenance: &mut Provenance<'_>) -> Option<PathBuf> {
    let name = options::ACME_STORAGE.spec.name;
    if section.value(name).is_some() {
        return provenance.read(section, &options::ACME_STORAGE).map(|path| folder.join(path));
    }
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    // systemd separates several directories by colons.
    let of_service = variable("STATE_DIRECTORY")
        .and_then(|all| std::env::split_paths(&all).next().map(|first| first.join("acme")));
    let of_user = || Some(PathBuf::from(variable("HOME")?).join(HOME_STATE).join("acme"));
    let Some(storage) = of_service.or_else(of_user) else {
        let message = "is required, because neither $STATE_DIRECTORY nor $HOME is set";
        provenance.refuse(section, name, message);
        return None;
    };
    provenance.derived(section.path_of(name), (options::ACME_STORAGE.reader.show)(&storage));
    Some(storage)
}

fn external_account(
    section: &Section,
    folder: &Path,
    provenance: &mut Provenance<'_>,
) -> Option<ExternalAccount> {
    let id = provenance.read(section, &options::ACCOUNT_ID);
    let path = folder.join(provenance.read(section, &options::ACCOUNT_HMAC_KEY_FILE)?);
    let shown = path.display();
    let message = match read_bounded(&path, KEY_BYTES_MAX) {
        Err(error) => format!("{shown} cannot be read: {error}"),
        Ok(text) => {
            let text = text.trim_ascii();
            let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"="));
            match BASE64URL_NOPAD.decode(digits.unwrap_or(text)) {
                Ok(key) if !key.is_empty() => {
                    return Some(ExternalAccount { id: id?, hmac_key: key });
                }
                _ => format!("{shown} does not hold a key in base64url"),
            }
        }
    };
    provenance.refuse(section, options::ACCOUNT_HMAC_KEY_FILE.spec.name, message);
    None
}

/// Applies `--domain`: automatic certificates for these names. Unless addresses are given, the
/// cache listens on the ports of https and http.
pub(super) fn override_domains(file: &mut File, domains: &Typed, has_listen: bool) {
    let tls = tls_file(file, domains.place);
    let acme = tls.acme.get_or_insert_with(|| AcmeFile {
        acme: Section::empty(Table::TlsAcme, "tls.acme", domains.place),
        external_account: None,
    });
    acme.acme.put(options::ACME_NAMES.spec.name, list(domains));
    let has_tls_listen = tls.tls.value(options::TLS_LISTEN.spec.name).is_some();
    if let [only] = file.sites.as_mut_slice()
        && only.site.place == Place::Flag
    {
        only.site.put(options::SITE_HOSTS.spec.name, list(domains));
    }
    let is_given = |name| file.top.value(name).is_some();
    if has_listen || has_tls_listen || !file.listeners.is_empty() {
        return;
    }
    if is_given(options::LISTEN.spec.name) {
        return;
    }
    for host in hosts_to_listen_on() {
        let secure = listener(file, domains, format!("{host}:443"), Listening::Https);
        file.listeners.push(secure);
        let plain = listener(file, domains, format!("{host}:80"), Listening::Redirect);
        file.listeners.push(plain);
    }
}

/// Applies `--agree-to-terms`.
pub(super) fn override_agreement(file: &mut File, flag: Typed, problems: &mut Problems) {
    let acme = file.tls.as_mut().and_then(|tls| tls.acme.as_mut());
    match acme {
        Some(acme) => {
            let agreed = Typed { raw: Raw::Truth(true), ..flag };
            acme.acme.put(options::ACME_AGREE_TO_TERMS.spec.name, agreed);
        }
        None => {
            let message = "has no effect without --domain NAME or [tls.acme] in the file";
            problems.report(flag.place, &flag.path, message);
        }
    }
}

fn tls_file(file: &mut File, place: Place) -> &mut TlsFile {
    file.tls.get_or_insert_with(|| TlsFile {
        tls: Section::empty(Table::Tls, "tls", place),
        certificates: Vec::new(),
        acme: None,
    })
}

/// List of the parts of a flag's value.
fn list(flag: &Typed) -> Typed {
    let Raw::Text(joined) = &flag.raw else { return flag.clone() };
    let item = |part: &str| Typed { raw: Raw::Text(part.trim().into()), ..flag.clone() };
    Typed { raw: Raw::List(joined.split(',').map(item).collect()), ..flag.clone() }
}

/// Listener that `--domain` makes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listening {
    Https,
    Redirect,
}

fn listener(file: &File, flag: &Typed, address: String, kind: Listening) -> Section {
    let path = format!("listener[{}]", file.listeners.len());
    let mut section = Section::empty(Table::Listener, &path, flag.place);
    let mut put = |name, raw| section.put(name, Typed { raw, ..flag.clone() });
    put(options::LISTENER_ADDRESS.spec.name, Raw::Text(address));
    match kind {
        Listening::Https => put(options::LISTENER_TLS.spec.name, Raw::Truth(true)),
        Listening::Redirect => {
            put(options::LISTENER_ROLE.spec.name, Raw::Text("redirect".to_owned()));
        }
    }
    section
}

/// Addresses of all interfaces; those of IPv6 only where the system has it.
fn hosts_to_listen_on() -> impl Iterator<Item = &'static str> {
    let has_ipv6 = std::net::UdpSocket::bind("[::1]:0").is_ok();
    ["0.0.0.0", "[::]"].into_iter().filter(move |host| has_ipv6 || *host != "[::]")
}
