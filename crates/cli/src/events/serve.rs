//! The command `serve`: event channels.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use corelane::{Dispatch, PoolConfig};
use corelane_services::events::{
    EventChannel, EventChannelBuilder, EventChannelFactory, EventMonitor, EventStore, Gateway, Retention, STORED_EVENTS,
};
use corelane_services::store::FileStore;
use corelane_sys::{poll, signal};

use super::channel::{channel_object, message};
use super::http;
use super::options::{CONTROL_KEY, DEFAULT_LISTEN, EventsArguments};
use crate::naming::control;
use crate::serving::{ServerOptions, corbaloc_urls};
use crate::text::excerpt;

const DEFAULT_CHANNEL: &str = "EventChannel";
/// Maximum number of connections that have a thread, in a server with a store.
const MAX_THREADS: usize = 256;

pub(super) fn run(arguments: &EventsArguments, out: &mut dyn Write) -> Result<(), String> {
    let termination = signal::termination().map_err(message)?;
    // Without a store, one thread keeps the order of each supplier's oneway pushes. It never waits: each consumer
    // has a thread, and `pull` raises TRANSIENT at once if there is no event.
    // With a store, requests wait for the disk, each in the thread of its connection. Connections beyond the maximum,
    // and those whose clients multiplex requests, share four threads, and do not keep the order of oneways.
    let dispatch = match arguments.store {
        Some(_) => Dispatch::ThreadPerConnection { max_threads: MAX_THREADS },
        None => Dispatch::Reactive,
    };
    let pool = PoolConfig::default().name("events").dispatch(dispatch);
    let options = ServerOptions {
        orb_config: arguments.orb_config.as_deref(),
        listen: &arguments.listen,
        publish: &arguments.publish,
        default_listen: DEFAULT_LISTEN,
    };
    let orb = Arc::new(options.builder(pool)?.build().map_err(message)?);
    let default = [DEFAULT_CHANNEL.to_owned()];
    let store = arguments.store.as_deref().map(open).transpose()?;
    let mut names = if arguments.channels.is_empty() { default.to_vec() } else { arguments.channels.clone() };
    let stored = store.as_ref().map(EventStore::channels).unwrap_or_default();
    if arguments.channels.is_empty() && !stored.is_empty() {
        names.clear();
    }
    let is_only_stored = |name: &String| stored.contains(name) && !arguments.channels.contains(name);
    names.extend(stored.iter().filter(|&name| !arguments.channels.contains(name)).cloned());
    if let Some((name, _)) = arguments.gateways.iter().find(|(name, _)| !names.contains(name)) {
        return Err(format!("`--gateway`: the server has no channel `{}`", excerpt(name)));
    }
    let monitor = EventMonitor::new();
    let mut lines = String::new();
    for name in &names {
        let mut channel = channel_builder(arguments).name(name);
        if let Some(store) = &store {
            channel = channel.durable(store, store.retention(name).unwrap_or_default());
        }
        for (_, to) in arguments.gateways.iter().filter(|(of, _)| of == name) {
            channel = channel.gateway(&channel_object(&orb, to)?, Gateway::builder());
        }
        let channel = match channel.serve(&orb) {
            Ok(channel) => channel,
            // The other channels of the file are served.
            Err(exception) if is_only_stored(name) => {
                let _ = writeln!(io::stderr(), "channel `{name}` of the store is not served: {exception}");
                continue;
            }
            Err(exception) => return Err(format!("channel `{name}`: {exception}")),
        };
        monitor.add(&channel);
        for url in corbaloc_urls(&orb, name) {
            lines += &format!("{url}\n{url}.rtec\n");
        }
    }
    let mut factory = EventChannelFactory::new(channel_builder(arguments)).monitor(&monitor);
    if let Some(store) = &store {
        factory = factory.durable(store, Retention::default());
    }
    factory.serve(&orb).map_err(message)?;
    monitor.serve(&orb).map_err(message)?;
    let controlled = match &arguments.control {
        Some(path) => {
            let users = arguments.allow_control.clone();
            Some(control::serve_object(&monitor.control_servant(), CONTROL_KEY, path, users)?)
        }
        None => None,
    };
    if let Some(address) = arguments.http {
        lines += &format!("http://{}/\n", http::serve(address, monitor.clone())?);
    }
    let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    poll::wait_readable_any([termination.as_fd()], None).map_err(message)?;
    if let Some(controlled) = controlled {
        controlled.shutdown(true).map_err(message)?;
    }
    orb.shutdown(true).map_err(message)
}

fn open(path: &Path) -> Result<EventStore, String> {
    FileStore::open_private(path, STORED_EVENTS).and_then(EventStore::open).map_err(message)
}

fn channel_builder(arguments: &EventsArguments) -> EventChannelBuilder {
    let max_waiting = if arguments.store.is_some() { MAX_THREADS / 2 } else { 0 };
    let builder = EventChannel::builder().max_waiting_pulls(max_waiting).lanes(arguments.lanes.iter().cloned());
    let builder = builder.overflow(arguments.overflow).filter_builder(arguments.filter_builder);
    builder.destroyed_by_clients(arguments.is_destroyed_by_clients)
}
