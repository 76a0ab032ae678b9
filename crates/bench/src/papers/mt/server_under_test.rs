//! A server that clients of several priorities call.

use std::sync::Arc;
use std::time::Duration;

use corelane::rt::{RtClientPolicies, RtConfig};
use corelane::{ConnectionPoolExhaustedAction, Orb};
use corelane_sys::thread::Scheduling;

use crate::Failure;
use crate::baseline::{BaselineClient, BaselineTransport, MessageSizes, WaitStrategy, parse_address};
use crate::client_group::GroupClient;
use crate::launch::{
    start_baseline, start_pool, start_server_with_bands, start_server_with_lanes, start_single_priority_server,
};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{ComputingCaller, PrioritizedCaller, TwoWayCaller, object, target};
use crate::orb::generated::cubit::CountedTargetRef;
use crate::orb::keys::KeyLifetime;
use crate::orb::{ServerArchitecture, client_orb, levels, limits};
use crate::peer::{PeerKind, PeerThreads};
use crate::placement::{Placement, permits_fixed_priorities};
use crate::sample::Samples;
use crate::service::RunningProgram;
use crate::workload::message_sizes;

/// Highest native priority of the benchmarks. There are 98 levels, so a server has at most 98
/// lanes.
pub(super) const TOP_PRIORITY: u8 = levels::LEVELS;
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct ServerUnderTest {
    pub(super) peer: &'static str,
    pub(super) transport: &'static str,
    pub(super) config: String,
    server: RunningProgram,
    made: ClientSource,
}

enum ClientSource {
    Orb(Orb, Vec<String>, Connections),
    /// For each client, the reference of its object and the CORBA priority of its thread.
    Banded(Orb, Vec<String>, Vec<i16>),
    Floor(String, MessageSizes),
}

impl ServerUnderTest {
    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(super) fn client(&self, number: usize, operation: MeasuredOperation) -> Result<Box<dyn GroupClient>, Failure> {
        match &self.made {
            ClientSource::Floor(address, sizes) => {
                Ok(Box::new(BaselineClient::connect(&parse_address(address)?, *sizes)?))
            }
            ClientSource::Banded(orb, references, priorities) => {
                let (Some(reference), Some(&priority)) = (references.get(number), priorities.get(number)) else {
                    return Err(Failure::new(format!("the server has no object for client {number}")));
                };
                let target = CountedTargetRef::from_object(object(orb, reference)?);
                let caller = TwoWayCaller { target, operation };
                Ok(Box::new(PrioritizedCaller { caller, orb: orb.real_time(), priority: Some(priority) }))
            }
            ClientSource::Orb(orb, references, connections) => {
                let mut object = object(orb, &references[number % references.len()])?;
                if *connections != Connections::Each {
                    // One band covers all priorities, because a connection carries the requests of
                    // one band.
                    object = object.with_rt_policies(&RtClientPolicies {
                        priority_bands: Some(vec![(0, i16::MAX)]),
                        private_connection: number == 0 && *connections == Connections::SharedByOthers,
                        ..RtClientPolicies::default()
                    })?;
                }
                Ok(Box::new(TwoWayCaller { target: CountedTargetRef::from_object(object), operation }))
            }
        }
    }

    pub(super) fn worker(&self, number: usize, rounds: u32) -> Result<Box<dyn GroupClient>, Failure> {
        match &self.made {
            ClientSource::Floor(..) | ClientSource::Banded(..) => {
                Err(Failure::new("this server's servants do not compute"))
            }
            ClientSource::Orb(orb, references, _) => {
                let text = &references[number % references.len()];
                Ok(Box::new(ComputingCaller { target: target(orb, text)?, rounds }))
            }
        }
    }
}

impl GroupClient for Box<dyn GroupClient> {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        (**self).calls(count, into)
    }
}

/// Returns the placement of a server without lanes: the top priority, so that no request waits
/// until the server gets a core.
fn at_the_top(options: &BenchOptions) -> Placement {
    all_at(TOP_PRIORITY, options)
}

fn all_at(priority: u8, options: &BenchOptions) -> Placement {
    Placement { scheduling: permits_fixed_priorities().then_some(Scheduling::Fifo(priority)), ..options.placement }
}

pub(super) fn floor(operation: MeasuredOperation, options: &BenchOptions) -> Result<ServerUnderTest, Failure> {
    let (server, address) = start_baseline(BaselineTransport::Tcp, WaitStrategy::Blocking, &at_the_top(options))?;
    let sizes = message_sizes(&client_orb(0)?, operation, options)?;
    let made = ClientSource::Floor(address, sizes);
    Ok(ServerUnderTest { peer: "floor", transport: "tcp", config: "blocking".to_owned(), server, made })
}

pub(super) fn pool(
    architecture: ServerArchitecture,
    objects: usize,
    options: &BenchOptions,
) -> Result<ServerUnderTest, Failure> {
    let mut server = start_pool(objects, KeyLifetime::Transient, architecture, &at_the_top(options))?;
    let references = listed(&mut server, &format!("same {objects}"))?;
    corelane(architecture.config(), BaselineTransport::Tcp, server, references, objects)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connections {
    /// Each call in progress has a separate connection.
    Each,
    /// All priorities share one connection for concurrent calls.
    Shared,
    /// The high-priority client has a private connection, and all other clients share one.
    SharedByOthers,
}

impl Connections {
    pub(super) fn name(self) -> &'static str {
        match self {
            Connections::Each => "",
            Connections::Shared => ", shared connection",
            Connections::SharedByOthers => ", private connection",
        }
    }
}

pub(super) fn single(
    architecture: ServerArchitecture,
    connections: Connections,
    options: &BenchOptions,
) -> Result<ServerUnderTest, Failure> {
    let (server, reference) = start_single_priority_server(architecture, &at_the_top(options))?;
    let orb = match connections {
        Connections::Each => client_orb(0)?,
        Connections::Shared | Connections::SharedByOthers => {
            let orb = Orb::builder()
                .limits(limits())
                .max_connections_per_server(1)
                .on_connection_pool_exhausted(ConnectionPoolExhaustedAction::Multiplex);
            orb.build().map_err(|error| Failure::new(error.to_string()))?
        }
    };
    let made = ClientSource::Orb(orb, vec![reference], connections);
    let config = format!("{}{}", architecture.config(), connections.name());
    Ok(ServerUnderTest { peer: "Corelane", transport: BaselineTransport::Tcp.name(), config, server, made })
}

/// Starts a Corelane server with an object and a lane for each priority (SERVER_DECLARED).
pub(super) fn laned(
    priorities: &[u8],
    transport: BaselineTransport,
    options: &BenchOptions,
) -> Result<ServerUnderTest, Failure> {
    // The lanes set the priorities of their threads, so the placement sets none.
    let placement = Placement { scheduling: None, ..options.placement };
    let mut server = start_server_with_lanes(priorities, transport, &placement)?;
    let references = listed(&mut server, "references")?;
    corelane("a lane for each priority".to_owned(), transport, server, references, priorities.len())
}

/// Starts a server with lanes and bands for clients whose threads have these CORBA priorities
/// (CLIENT_PROPAGATED).
pub(super) fn banded(priorities: Vec<i16>, options: &BenchOptions) -> Result<ServerUnderTest, Failure> {
    let placement = Placement { scheduling: None, ..options.placement };
    let mut server = start_server_with_bands(&priorities, &placement)?;
    let references = listed(&mut server, "references")?;
    let rt = RtConfig::default().priority_mapping(Arc::new(levels::MAPPING));
    // Permits a connection for each client, even if all clients are in one band.
    let orb = Orb::builder().real_time(rt).limits(limits()).max_connections_per_server(priorities.len().max(1)).build();
    let orb = orb.map_err(|error| Failure::new(error.to_string()))?;
    let config = "a lane for each level".to_owned();
    let made = ClientSource::Banded(orb, references, priorities);
    Ok(ServerUnderTest { peer: "Corelane", transport: BaselineTransport::Tcp.name(), config, server, made })
}

pub(super) fn omniorb(
    clients: usize,
    transport: BaselineTransport,
    priority: u8,
    options: &BenchOptions,
) -> Result<ServerUnderTest, Failure> {
    let peer = options.peer(PeerKind::OmniOrb)?;
    let (server, reference) = peer.serve(transport, PeerThreads::Default, &all_at(priority, options))?;
    Ok(ServerUnderTest {
        peer: "omniORB",
        transport: transport.name(),
        config: format!("thread per connection, at {priority}"),
        server,
        made: ClientSource::Orb(client_orb(clients)?, vec![reference], Connections::Each),
    })
}

fn corelane(
    config: String,
    transport: BaselineTransport,
    server: RunningProgram,
    references: Vec<String>,
    clients: usize,
) -> Result<ServerUnderTest, Failure> {
    let made = ClientSource::Orb(client_orb(clients)?, references, Connections::Each);
    Ok(ServerUnderTest { peer: "Corelane", transport: transport.name(), config, server, made })
}

fn listed(server: &mut RunningProgram, ask: &str) -> Result<Vec<String>, Failure> {
    Ok(server.ask(ask, PATIENCE)?.split(' ').map(str::to_owned).collect())
}
