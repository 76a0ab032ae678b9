//! The command `corelane events serve`, which runs a server of event channels.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corelane::{Dispatch, Orb, PoolConfig};
use corelane_services::events::{
    ChannelSchedule, EventChannel, EventChannelBuilder, EventChannelFactory, EventMonitor, EventStore,
    EventStoreLimits, FACTORY_KEY, Gateway, RECORD_FORMAT, Retention, receive_lanes,
};
use corelane_services::store::FileStore;
use corelane_sys::{poll, signal};

use super::channel::{channel_object, message};
use super::check::ChannelFile;
use super::options::{CONTROL_KEY, DEFAULT_LISTEN, EventsArguments};
use super::{check, http};
use crate::naming::control;
use crate::serving::{ServerOptions, corbaloc_urls};
use crate::text::{excerpt, printable};

const DEFAULT_CHANNEL: &str = "EventChannel";
/// Maximum number of connections that have a thread, in a server with a store. At most 192 of them
/// wait for the store, or for a further event (`EventStoreLimits`).
const MAX_THREADS: usize = 256;
/// At the end of the server, the maximum time for which requests still wait for the disk. After
/// that, the server itself waits for the disk for at most this time.
const END_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn run(arguments: &EventsArguments, out: &mut dyn Write) -> Result<(), String> {
    let termination = signal::termination().map_err(message)?;
    // Without a store, one thread keeps the order of each supplier's oneway pushes. This thread
    // does not wait: each consumer has a thread, and `pull` raises TRANSIENT at once if there is no
    // event. With a store, requests wait for the disk, each in the thread of its connection.
    // Connections beyond the maximum, and those whose clients multiplex requests, share four
    // threads, of which at most three wait. These four threads do not keep the order of oneways.
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
    let store = arguments.store.as_deref().map(|path| open(path, arguments)).transpose()?;
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
    let schedule = arguments.schedule.as_deref().map(schedule).transpose()?;
    let template = channel_builder(&orb, arguments, schedule.as_ref())?;
    let monitor = EventMonitor::new();
    let mut lines = String::new();
    for name in &names {
        let mut channel = template.clone().name(name);
        let log_name = name.clone();
        channel = channel.on_refusal(move |refusal| {
            let _ = writeln!(io::stderr(), "channel `{log_name}`: {refusal}");
        });
        if let Some(store) = &store {
            channel = channel.durable(store, store.retention(name).unwrap_or_default());
        }
        for (_, to) in arguments.gateways.iter().filter(|(of, _)| of == name) {
            channel = channel.gateway(&channel_object(&orb, to)?, Gateway::builder());
        }
        let channel = match channel.serve(&orb) {
            Ok(channel) => channel,
            // A stored channel that cannot be served does not keep the server from serving the
            // others.
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
    let mut factory = EventChannelFactory::new(template).monitor(&monitor);
    if let Some(channels) = arguments.max_channels {
        factory = factory.max_channels(channels);
    }
    if let Some(store) = &store {
        let is_permitted = arguments.is_created_by_clients;
        let retention = Retention::default();
        factory = if is_permitted {
            factory.durable(store, retention)
        } else {
            factory.durable_by_permission(store, retention)
        };
    }
    let (_, permitted_factory) = factory.serve_with_control_servant(&orb).map_err(message)?;
    monitor.serve(&orb).map_err(message)?;
    let controlled = match &arguments.control {
        Some(path) => {
            let users = arguments.allow_control.clone();
            let objects = [(&monitor.control_servant(), CONTROL_KEY), (&permitted_factory, FACTORY_KEY)];
            Some(control::serve_objects(&objects, path, users)?)
        }
        None => None,
    };
    if let Some(address) = arguments.http {
        lines += &format!("http://{}/\n", http::serve(address, monitor.clone())?);
    }
    let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    poll::wait_readable_any([termination.as_fd()], None).map_err(message)?;
    // The shutdown waits for running requests, so their waits for the store are bounded first.
    // After the shutdown the store has the events of all requests, so it is closed last.
    if let Some(store) = &store {
        store.limit_wait_time(END_TIMEOUT);
    }
    let controlled = controlled.map_or(Ok(()), |controlled| controlled.shutdown(true).map_err(message));
    let ended = orb.shutdown(true).map_err(message);
    store.map_or(Ok(()), |store| store.close(END_TIMEOUT).map_err(message))?;
    controlled.and(ended)
}

fn open(path: &Path, arguments: &EventsArguments) -> Result<EventStore, String> {
    let mut limits = EventStoreLimits::default();
    limits.max_channels = arguments.max_channels.unwrap_or(limits.max_channels);
    limits.max_consumers = arguments.max_consumers.unwrap_or(limits.max_consumers);
    limits.max_bytes = arguments.max_bytes.unwrap_or(limits.max_bytes);
    let file = FileStore::open_private(path, RECORD_FORMAT);
    file.and_then(|file| EventStore::open_with(file, limits)).map_err(message)
}

/// Reads a channel file and its schedule. Refuses a file in which no publication and no
/// subscription has an `rt_info`.
fn schedule(path: &str) -> Result<(ChannelFile, ChannelSchedule), String> {
    let file = check::read(path)?;
    if !file.is_scheduled() {
        return Err(format!("`{}`: no publication and no subscription has an `rt_info`", excerpt(path)));
    }
    let schedule = file.schedule().map_err(|error| printable(&format!("{}: {error}", excerpt(path))))?;
    Ok((file, schedule))
}

fn channel_builder(
    orb: &Orb,
    arguments: &EventsArguments,
    schedule: Option<&(ChannelFile, ChannelSchedule)>,
) -> Result<EventChannelBuilder, String> {
    let builder = EventChannel::builder().max_waiting_pulls(0).overflow_policy(arguments.overflow);
    let (builder, lanes) = match schedule {
        Some((file, schedule)) => (builder.filter_builder(file.builder).schedule(schedule.clone()), file.event_lanes()),
        None => (builder.filter_builder(arguments.filter_builder), arguments.lanes.clone()),
    };
    let builder = match arguments.has_receive_lanes {
        true => builder.real_time(receive_lanes(orb, &lanes, arguments.ceiling).map_err(message)?),
        false => builder,
    };
    let builder = builder.lanes(lanes).allow_gateways_by_clients(!arguments.has_no_gateways_by_clients);
    Ok(builder.allow_destroy_by_clients(arguments.is_destroyed_by_clients))
}
