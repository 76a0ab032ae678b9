//! The commands `corelane naming serve`, `backup` and `shutdown`, which run a name server, copy its
//! store and end it.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use corelane::{Dispatch, Endpoint, Orb, PoolConfig};
use corelane_services::naming::{NAME_SERVICE_KEY, NamingConfig, RECORD_FORMAT};
use corelane_services::store::{Durability, FileStore, Store, StoreError};
use corelane_sys::eventfd::EventFd;
use corelane_sys::{poll, signal};
use serde_json::json;

use super::output::Output;
use super::{NamingArguments, control};
use crate::serving::{ServerOptions, corbaloc_urls};

const THREADS: usize = 40;
/// Maximum number of changes that wait for the disk at the same time. Threads that do not wait can
/// resolve names.
const MAX_WAITING_CHANGES: usize = 32;
/// An address that only programs on this machine can reach.
const DEFAULT_LISTEN: &str = "tcp:127.0.0.1:2809";

pub(super) fn run(arguments: &NamingArguments, out: &mut Output<'_>) -> Result<(), String> {
    let termination = signal::termination().map_err(|error| error.to_string())?;
    let pool = PoolConfig::default().name("naming").dispatch(Dispatch::LeaderFollowers { threads: THREADS });
    let options = ServerOptions {
        orb_config: arguments.orb_config.as_deref(),
        listen: &arguments.listen,
        publish: &arguments.publish,
        default_listen: DEFAULT_LISTEN,
    };
    let orb = options.builder(pool)?.build().map_err(|error| error.to_string())?;
    let mut naming = NamingConfig::new()
        .durability(arguments.durability)
        .max_waiting_changes(MAX_WAITING_CHANGES)
        .max_forwarding_threads(THREADS / 4)
        .max_watching_clients(THREADS / 10);
    if let Some(store) = &arguments.store {
        naming = naming.store_file(store);
    }
    if arguments.read_only {
        naming = naming.read_only();
    }
    let naming = naming.serve(&orb).map_err(|error| error.to_string())?;
    control::refuse(&orb)?;
    let end = Arc::new(EventFd::new().map_err(|error| error.to_string())?);
    let controlled = match control_path(arguments) {
        Some(path) => {
            let (end, users) = (Arc::clone(&end), arguments.allow_control.clone());
            Some(control::serve(&naming, &path, users, move || end.notify())?)
        }
        None => None,
    };
    let reference = naming.reference().as_object().to_string();
    let urls = corbaloc_urls(&orb, NAME_SERVICE_KEY);
    if let Some(path) = &arguments.ior_file {
        fs::write(path, format!("{reference}\n"))
            .map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
    }
    out.last_lines(
        || [std::slice::from_ref(&reference), &urls[..]].concat(),
        || json!({ "reference": reference, "urls": urls }),
    );
    explain(arguments, &orb);
    notify("READY=1\n").map_err(|error| format!("cannot report the start to NOTIFY_SOCKET: {error}"))?;
    poll::wait_readable_any([termination.as_fd(), end.as_fd()], None).map_err(|error| error.to_string())?;
    let _ = notify("STOPPING=1\n");
    if let Some(orb) = controlled {
        orb.shutdown(true).map_err(|error| error.to_string())?;
    }
    orb.shutdown(true).map_err(|error| error.to_string())
}

fn control_path(arguments: &NamingArguments) -> Option<PathBuf> {
    if arguments.allow_control.is_empty() {
        return None;
    }
    let of_store = || {
        let mut path = arguments.store.clone()?.into_os_string();
        path.push(".control");
        Some(path.into())
    };
    arguments.control.clone().or_else(of_store)
}

fn is_reachable_from_other_machines(orb: &Orb) -> bool {
    let is_loopback = |host: &str| host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    orb.endpoints().iter().any(|endpoint| matches!(endpoint, Endpoint::Tcp { host, .. } if !is_loopback(host)))
}

/// Prints advice to the standard error, because the standard output is for the reference.
fn explain(arguments: &NamingArguments, orb: &Orb) {
    let mut text = String::new();
    if !is_reachable_from_other_machines(orb) {
        text += "only programs on this machine can reach this server; for others: --listen tcp::2809 --publish tcp:HOST:2809\n";
    }
    match (&arguments.store, arguments.durability) {
        (None, _) => text += "names are lost when this server ends; to keep them: --store FILE\n",
        (Some(_), Durability::Relaxed) => {
            text += "changes are acknowledged before they are on the disk: a power failure can lose those of the last 100 ms\n";
        }
        (Some(_), Durability::Synced) => {}
    }
    if let Some(path) = control_path(arguments) {
        let users: Vec<String> = arguments.allow_control.iter().map(u32::to_string).collect();
        text += &format!("users {} control this server over {}\n", users.join(", "), path.display());
    }
    let _ = io::stderr().write_all(text.as_bytes());
}

fn notify(state: &str) -> io::Result<()> {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match name.as_encoded_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(&name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

pub(super) fn shutdown(arguments: &NamingArguments) -> Result<(), String> {
    let orb = Orb::new().map_err(|error| error.to_string())?;
    let path = arguments.control.as_deref().ok_or("a control socket is needed")?;
    control::object(&orb, path)?.shutdown().map_err(|exception| control::explain(&exception))
}

fn running_backup(path: &Path, copy: &str, out: &mut Output<'_>) -> Result<(), String> {
    let orb = Orb::new().map_err(|error| error.to_string())?;
    // The server may have another working directory, so it gets an absolute path.
    let absolute = std::path::absolute(copy).map_err(|error| format!("`{copy}`: {error}"))?;
    let text = absolute.to_str().ok_or_else(|| format!("the path `{copy}` is not UTF-8"))?;
    control::object(&orb, path)?.backup(text).map_err(control::backup_message)?;
    out.last_line(|| format!("{copy} has all names of the server"), || json!({ "copy": text }));
    Ok(())
}

pub(super) fn backup(arguments: &NamingArguments, out: &mut Output<'_>) -> Result<(), String> {
    if let (Some(path), Some(copy)) = (&arguments.control, arguments.words.first()) {
        return running_backup(path, copy, out);
    }
    let (Some(store), Some(copy)) = (&arguments.store, arguments.words.first()) else {
        return Err("a store and a copy are needed".to_owned());
    };
    if !store.exists() {
        return Err(format!("there is no file `{}`", store.display()));
    }
    let opened = FileStore::open(store, RECORD_FORMAT).map_err(|error| match error {
        StoreError::Locked { .. } => format!("{error}, or copy it while the server runs: --control PATH"),
        error => error.to_string(),
    })?;
    opened.backup(Path::new(copy)).map_err(|error| error.to_string())?;
    out.last_line(|| format!("{copy} has all names of {}", store.display()), || json!({ "copy": copy }));
    Ok(())
}
