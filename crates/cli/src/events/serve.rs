//! The command `serve`: event channels.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::Arc;

use corelane::{Dispatch, Endpoint, Orb, PoolConfig};
use corelane_services::events::{EventChannel, EventChannelFactory};
use corelane_sys::{poll, signal};

use super::{DEFAULT_LISTEN, EventsArguments, message};

/// Name of the channel if no name is given.
const DEFAULT_CHANNEL: &str = "EventChannel";

/// Serves channels until the process receives a termination signal.
pub(super) fn run(arguments: &EventsArguments, out: &mut dyn Write) -> Result<(), String> {
    let termination = signal::termination().map_err(message)?;
    // One thread keeps the order of each supplier's oneway pushes. It never waits: each consumer has
    // a thread, and `pull` raises TRANSIENT at once if there is no event.
    let pool = PoolConfig::default().dispatch(Dispatch::Reactive);
    let mut builder = Orb::builder().pool(pool);
    if arguments.listen.is_empty() {
        builder = builder.listen(DEFAULT_LISTEN);
    }
    builder = arguments.listen.iter().fold(builder, |builder, address| builder.listen(address));
    builder = arguments.publish.iter().fold(builder, |builder, address| builder.publish(address));
    let orb = Arc::new(builder.build().map_err(message)?);
    let default = [DEFAULT_CHANNEL.to_owned()];
    let names = if arguments.channels.is_empty() { &default } else { &arguments.channels[..] };
    let mut lines = String::new();
    for name in names {
        let channel = EventChannel::builder().name(name).max_waiting_pulls(0);
        channel.serve(&orb).map_err(|exception| format!("channel `{name}`: {exception}"))?;
        for endpoint in orb.endpoints() {
            if let Endpoint::Tcp { host, port } = endpoint {
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                lines += &format!("corbaloc::1.2@{host}:{port}/{name}\ncorbaloc::1.2@{host}:{port}/{name}.rtec\n");
            }
        }
    }
    EventChannelFactory::new(EventChannel::builder().max_waiting_pulls(0)).serve(&orb).map_err(message)?;
    // Ignore errors: the reader may have closed the pipe.
    let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    poll::wait_readable_any([termination.as_fd()], None).map_err(message)?;
    orb.shutdown(true).map_err(message)
}
