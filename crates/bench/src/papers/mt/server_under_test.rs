//! A server that clients of several priorities call, and the ways to create its clients.

use std::sync::Arc;
use std::time::Duration;

use corelane::rt::{RtClientPolicies, RtConfig};
use corelane::{Orb, PoolExhaustedAction};
use corelane_sys::thread::Scheduling;

use crate::Failure;
use crate::baseline::{BaselineClient, BaselineTransport, MessageSizes, Spinning, address_of};
use crate::client_group::GroupClient;
use crate::launch::{start_banded, start_declared, start_floor, start_laned, start_pool};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{ComputingCaller, Prioritised, TwoWayCaller, object, target};
use crate::orb::generated::cubit::CountedTargetRef;
use crate::orb::keys::Keys;
use crate::orb::{ServerArchitecture, client_orb, levels, limits};
use crate::peer::{PeerKind, Threads};
use crate::placement::{Placement, permits_fixed_priorities};
use crate::sample::Samples;
use crate::service::RunningProgram;
use crate::workload::message_sizes;

/// Native priority of the high-priority client. The other clients are below it: there are 98
/// levels, and so at most 98 lanes.
pub(super) const TOP: u8 = levels::LEVELS;
/// Maximum time for a server to list references.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server. It ends on drop.
pub(super) struct ServerUnderTest {
    pub(super) peer: &'static str,
    pub(super) transport: &'static str,
    pub(super) config: String,
    server: RunningProgram,
    made: ClientSource,
}

enum ClientSource {
    /// One reference for each client, or one for all clients.
    Orb(Orb, Vec<String>, Connections),
    /// One reference for each client, and the CORBA priority of its thread.
    Banded(Orb, Vec<String>, Vec<i16>),
    /// Address of a baseline server, and the message sizes.
    Floor(String, MessageSizes),
}

impl ServerUnderTest {
    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Creates a client of the object with a number.
    pub(super) fn client(&self, number: usize, operation: MeasuredOperation) -> Result<Box<dyn GroupClient>, Failure> {
        match &self.made {
            ClientSource::Floor(address, sizes) => {
                Ok(Box::new(BaselineClient::connect(&address_of(address)?, *sizes)?))
            }
            ClientSource::Banded(orb, references, priorities) => {
                let (Some(reference), Some(&priority)) = (references.get(number), priorities.get(number)) else {
                    return Err(Failure::new(format!("the server has no object for client {number}")));
                };
                let target = CountedTargetRef::from_object(object(orb, reference)?);
                let caller = TwoWayCaller { target, operation };
                Ok(Box::new(Prioritised { caller, orb: orb.real_time(), priority: Some(priority) }))
            }
            ClientSource::Orb(orb, references, connections) => {
                let mut object = object(orb, &references[number % references.len()])?;
                if *connections != Connections::Each {
                    // There is one band for all priorities, because otherwise no connection would
                    // carry two native ones.
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

    /// Creates a client that lets the object with a number compute. Bare sockets have no such
    /// object.
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

/// Returns a placement at the top priority. Threads of a server without lanes run there, so that no
/// request waits until the server gets a processor.
fn at_the_top(options: &BenchOptions) -> Placement {
    all_at(TOP, options)
}

fn all_at(priority: u8, options: &BenchOptions) -> Placement {
    Placement { scheduling: permits_fixed_priorities().then_some(Scheduling::Fifo(priority)), ..options.placement }
}

/// Starts a baseline server: bare sockets, a blocking thread for each client.
pub(super) fn floor(operation: MeasuredOperation, options: &BenchOptions) -> Result<ServerUnderTest, Failure> {
    let (server, address) = start_floor(BaselineTransport::Tcp, Spinning::Blocking, &at_the_top(options))?;
    let sizes = message_sizes(&client_orb(0)?, operation, options)?;
    let made = ClientSource::Floor(address, sizes);
    Ok(ServerUnderTest { peer: "floor", transport: "tcp", config: "blocking".to_owned(), server, made })
}

/// Starts a Corelane server without lanes, with a number of objects.
pub(super) fn pool(
    architecture: ServerArchitecture,
    objects: usize,
    options: &BenchOptions,
) -> Result<ServerUnderTest, Failure> {
    let mut server = start_pool(objects, Keys::Transient, architecture, &at_the_top(options))?;
    let references = listed(&mut server, &format!("same {objects}"))?;
    corelane(architecture.config(), BaselineTransport::Tcp, server, references, objects)
}

/// Use of connections by the clients of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connections {
    /// Each call in progress has its own connection.
    Each,
    /// One connection for all priorities, with concurrent calls.
    Shared,
    /// One connection for all other clients. The high-priority client has its own (Real-time
    /// CORBA's private connection).
    SharedByOthers,
}

impl Connections {
    /// Returns the suffix that labels use.
    pub(super) fn name(self) -> &'static str {
        match self {
            Connections::Each => "",
            Connections::Shared => ", shared connection",
            Connections::SharedByOthers => ", private connection",
        }
    }
}

/// Starts a Corelane server without lanes, with one object that declares one priority for all
/// calls.
pub(super) fn single(
    architecture: ServerArchitecture,
    connections: Connections,
    options: &BenchOptions,
) -> Result<ServerUnderTest, Failure> {
    let (server, reference) = start_declared(architecture, &at_the_top(options))?;
    let orb = match connections {
        Connections::Each => client_orb(0)?,
        Connections::Shared | Connections::SharedByOthers => {
            let orb = Orb::builder()
                .limits(limits())
                .max_connections_per_server(1)
                .on_pool_exhausted(PoolExhaustedAction::Multiplex);
            orb.build().map_err(|error| Failure::new(error.to_string()))?
        }
    };
    let made = ClientSource::Orb(orb, vec![reference], connections);
    let config = format!("{}{}", architecture.config(), connections.name());
    Ok(ServerUnderTest { peer: "Corelane", transport: BaselineTransport::Tcp.name(), config, server, made })
}

/// Starts a Corelane server whose objects have the priorities of their clients, first that of the
/// high-priority client. It uses Real-time CORBA's SERVER_DECLARED, with a lane for each priority.
pub(super) fn laned(
    priorities: &[u8],
    carrier: BaselineTransport,
    options: &BenchOptions,
) -> Result<ServerUnderTest, Failure> {
    // Lanes have priorities of their own; the other threads of the server have the ordinary class.
    let placement = Placement { scheduling: None, ..options.placement };
    let mut server = start_laned(priorities, carrier, &placement)?;
    let references = listed(&mut server, "references")?;
    corelane("a lane for each priority".to_owned(), carrier, server, references, priorities.len())
}

/// Starts a Corelane server with an object for each client, whose thread has the given CORBA
/// priority (CLIENT_PROPAGATED). The server has a lane for each native level.
pub(super) fn banded(priorities: Vec<i16>, options: &BenchOptions) -> Result<ServerUnderTest, Failure> {
    // Lanes have priorities of their own; the other threads of the server have the ordinary class.
    let placement = Placement { scheduling: None, ..options.placement };
    let mut server = start_banded(&priorities, &placement)?;
    let references = listed(&mut server, "references")?;
    let rt = RtConfig::default().priority_mapping(Arc::new(levels::MAPPING));
    // A connection for each client, even if all of them are in one band.
    let orb = Orb::builder().real_time(rt).limits(limits()).max_connections_per_server(priorities.len().max(1)).build();
    let orb = orb.map_err(|error| Failure::new(error.to_string()))?;
    let config = "a lane for each level".to_owned();
    let made = ClientSource::Banded(orb, references, priorities);
    Ok(ServerUnderTest { peer: "Corelane", transport: BaselineTransport::Tcp.name(), config, server, made })
}

/// Starts omniORB's server, which has a thread for each connection and is called by Corelane's
/// clients. All threads have the given fixed priority, if this is permitted.
pub(super) fn omniorb(
    clients: usize,
    carrier: BaselineTransport,
    priority: u8,
    options: &BenchOptions,
) -> Result<ServerUnderTest, Failure> {
    let peer = options.peer(PeerKind::OmniOrb)?;
    let (server, reference) = peer.serve(carrier, Threads::Usual, &all_at(priority, options))?;
    Ok(ServerUnderTest {
        peer: "omniORB",
        transport: carrier.name(),
        config: format!("thread per connection, at {priority}"),
        server,
        made: ClientSource::Orb(client_orb(clients)?, vec![reference], Connections::Each),
    })
}

fn corelane(
    config: String,
    carrier: BaselineTransport,
    server: RunningProgram,
    references: Vec<String>,
    clients: usize,
) -> Result<ServerUnderTest, Failure> {
    let made = ClientSource::Orb(client_orb(clients)?, references, Connections::Each);
    Ok(ServerUnderTest { peer: "Corelane", transport: carrier.name(), config, server, made })
}

fn listed(server: &mut RunningProgram, ask: &str) -> Result<Vec<String>, Failure> {
    Ok(server.ask(ask, PATIENCE)?.split(' ').map(str::to_owned).collect())
}
