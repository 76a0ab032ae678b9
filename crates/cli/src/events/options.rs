//! The arguments of all subcommands, as `parse` returns them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use corelane_services::events::{EventLane, FilterBuilder, OverflowPolicy};

/// Default address of `serve`.
pub(super) const DEFAULT_LISTEN: &str = "tcp:127.0.0.1:11169";
/// Host and port of the server of a channel that is given by its name.
pub(super) const DEFAULT_SERVER: &str = "127.0.0.1:11169";

pub(super) const CONTROL_KEY: &str = "CorelaneEventsControl";

/// The arguments of all subcommands. Arguments of other subcommands keep their defaults.
#[derive(Debug, Default)]
pub(super) struct EventsArguments {
    pub(super) listen: Vec<String>,
    pub(super) publish: Vec<String>,
    pub(super) orb_config: Option<String>,
    pub(super) channels: Vec<String>,
    pub(super) types: Vec<i32>,
    pub(super) source: Option<i32>,
    pub(super) filter: Option<String>,
    pub(super) count: Option<u64>,
    pub(super) is_json: bool,
    pub(super) lanes: Vec<EventLane>,
    pub(super) overflow: OverflowPolicy,
    pub(super) filter_builder: FilterBuilder,
    /// The channel file of `serve`, with the lanes and the schedule of its channels.
    pub(super) schedule: Option<String>,
    pub(super) allow_control: Vec<u32>,
    pub(super) control: Option<PathBuf>,
    pub(super) is_destroyed_by_clients: bool,
    pub(super) has_no_gateways_by_clients: bool,
    pub(super) has_receive_lanes: bool,
    pub(super) ceiling: Option<i16>,
    pub(super) is_created_by_clients: bool,
    pub(super) max_channels: Option<usize>,
    pub(super) max_consumers: Option<usize>,
    pub(super) max_bytes: Option<u64>,
    pub(super) http: Option<SocketAddr>,
    pub(super) store: Option<PathBuf>,
    pub(super) is_durable: bool,
    pub(super) is_acknowledged: bool,
    pub(super) is_followed: bool,
    pub(super) consumer: Option<String>,
    pub(super) from: Option<u64>,
    pub(super) at: Option<String>,
    pub(super) interval: Option<Duration>,
    pub(super) channel: String,
    /// The destination of a gateway.
    pub(super) to: String,
    pub(super) is_both: bool,
    /// The gateways of `serve`: the name of a channel, and the destination.
    pub(super) gateways: Vec<(String, String)>,
    pub(super) ttl: Option<i32>,
    pub(super) texts: Vec<String>,
}
