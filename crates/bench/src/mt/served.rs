//! What is called by clients of several priorities: a server, and how to make a client of it.

use std::sync::Arc;
use std::time::Duration;

use corelane::rt::{RtClientPolicies, RtConfig};
use corelane::{AllBusy, Orb, Reference};
use corelane_sys::thread::{Builder, Scheduling};

use super::TOP;
use crate::Failure;
use crate::call::message_sizes;
use crate::crowd::Member;
use crate::floor::{Carrier, FloorClient, Sizes, Waiting, address_of};
use crate::operation::Operation;
use crate::options::Options;
use crate::orb::client::{Caller, Prioritised, Worker, object, target};
use crate::orb::generated::cubit::CountedTargetRef;
use crate::orb::server::Keys;
use crate::orb::{Architecture, client_orb, levels, limits};
use crate::peer::{Kind, Threads};
use crate::placement::Placement;
use crate::sample::Samples;
use crate::server::{start_banded, start_declared, start_floor, start_laned, start_pool};
use crate::service::Service;

/// How long a server may take to list references.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A server that runs. Ends with this.
pub(super) struct Served {
    pub(super) peer: &'static str,
    pub(super) transport: &'static str,
    pub(super) config: String,
    server: Service,
    made: Made,
}

enum Made {
    /// One reference for each client, or one for all.
    Orb(Orb, Vec<String>, Connections),
    /// One reference for each client, and the CORBA priority of its thread.
    Banded(Orb, Vec<String>, Vec<i16>),
    /// The address of a floor server, and the sizes of messages.
    Floor(String, Sizes),
}

impl Served {
    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// A client of the object with that number.
    pub(super) fn member(&self, number: usize, operation: Operation) -> Result<Box<dyn Member>, Failure> {
        match &self.made {
            Made::Floor(address, sizes) => Ok(Box::new(FloorClient::connect(&address_of(address)?, *sizes)?)),
            Made::Banded(orb, references, priorities) => {
                let (Some(reference), Some(&priority)) = (references.get(number), priorities.get(number)) else {
                    return Err(Failure::new(format!("the server has no object for client {number}")));
                };
                let target = CountedTargetRef::from_object(object(orb, reference)?);
                let caller = Caller { target, operation };
                Ok(Box::new(Prioritised { caller, orb: orb.real_time(), priority: Some(priority) }))
            }
            Made::Orb(orb, references, connections) => {
                let mut object = object(orb, &references[number % references.len()])?;
                if *connections != Connections::Each {
                    // One band for all priorities: else no connection would carry two native ones.
                    object = object.with_rt_policies(&RtClientPolicies {
                        priority_bands: Some(vec![(0, i16::MAX)]),
                        private_connection: number == 0 && *connections == Connections::SharedByOthers,
                        ..RtClientPolicies::default()
                    })?;
                }
                Ok(Box::new(Caller { target: CountedTargetRef::from_object(object), operation }))
            }
        }
    }

    /// A client that lets the object with that number compute. Bare sockets have none.
    pub(super) fn worker(&self, number: usize, rounds: u32) -> Result<Box<dyn Member>, Failure> {
        match &self.made {
            Made::Floor(..) | Made::Banded(..) => Err(Failure::new("this server's servants do not compute")),
            Made::Orb(orb, references, _) => {
                let text = &references[number % references.len()];
                Ok(Box::new(Worker { target: target(orb, text)?, rounds }))
            }
        }
    }
}

impl Member for Box<dyn Member> {
    fn calls(&mut self, count: usize, into: &mut Samples) -> Result<(), Failure> {
        (**self).calls(count, into)
    }
}

/// Whether fixed priorities are permitted here.
pub(super) fn fixed() -> bool {
    Builder::new().scheduling(Scheduling::Fifo(TOP)).spawn(|| ()).is_ok()
}

/// Threads of a server without lanes have the top priority, so that nobody's request waits for the server to get a processor.
fn at_the_top(options: &Options) -> Placement {
    all_at(TOP, options)
}

fn all_at(priority: u8, options: &Options) -> Placement {
    Placement { scheduling: fixed().then_some(Scheduling::Fifo(priority)), ..options.placement }
}

/// Bare sockets, a blocking thread for each client.
pub(super) fn floor(operation: Operation, options: &Options) -> Result<Served, Failure> {
    let (server, address) = start_floor(Carrier::Tcp, Waiting::Blocking, &at_the_top(options))?;
    let sizes = message_sizes(&client_orb(0)?, operation, options)?;
    let made = Made::Floor(address, sizes);
    Ok(Served { peer: "floor", transport: "tcp", config: "blocking".to_owned(), server, made })
}

/// A Corelane server without lanes, with so many objects.
pub(super) fn pool(architecture: Architecture, objects: usize, options: &Options) -> Result<Served, Failure> {
    let mut server = start_pool(objects, Keys::Transient, architecture, &at_the_top(options))?;
    let references = listed(&mut server, &format!("same {objects}"))?;
    corelane(architecture.config(), Carrier::Tcp, server, references, objects)
}

/// How the clients of one process use connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Connections {
    /// A call has one for itself.
    Each,
    /// One for all priorities, on which calls go at the same time.
    Shared,
    /// The same, and the high-priority client has one of its own (Real-time CORBA's private connection).
    SharedByOthers,
}

impl Connections {
    /// As labels say it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Connections::Each => "",
            Connections::Shared => ", shared connection",
            Connections::SharedByOthers => ", private connection",
        }
    }
}

/// The same with one object, which declares one priority for all calls.
pub(super) fn single(
    architecture: Architecture,
    connections: Connections,
    options: &Options,
) -> Result<Served, Failure> {
    let (server, reference) = start_declared(architecture, &at_the_top(options))?;
    let orb = match connections {
        Connections::Each => client_orb(0)?,
        Connections::Shared | Connections::SharedByOthers => {
            let orb = Orb::builder().limits(limits()).connections_per_server(1).all_connections_busy(AllBusy::Share);
            orb.build().map_err(|error| Failure::new(error.to_string()))?
        }
    };
    let made = Made::Orb(orb, vec![reference], connections);
    let config = format!("{}{}", architecture.config(), connections.name());
    Ok(Served { peer: "Corelane", transport: Carrier::Tcp.name(), config, server, made })
}

/// A Corelane server whose objects have the priorities of their clients, the first the high-priority client's: Real-time CORBA's SERVER_DECLARED,
/// with a lane for each priority.
pub(super) fn laned(priorities: &[u8], carrier: Carrier, options: &Options) -> Result<Served, Failure> {
    // Lanes have priorities of their own; the rest of the server is of the ordinary class.
    let placement = Placement { scheduling: None, ..options.placement };
    let mut server = start_laned(priorities, carrier, &placement)?;
    let references = listed(&mut server, "references")?;
    corelane("a lane for each priority".to_owned(), carrier, server, references, priorities.len())
}

/// A Corelane server with an object for each client, whose thread has that CORBA priority (CLIENT_PROPAGATED), and a lane for each native level.
pub(super) fn banded(priorities: Vec<i16>, options: &Options) -> Result<Served, Failure> {
    // Lanes have priorities of their own; the rest of the server is of the ordinary class.
    let placement = Placement { scheduling: None, ..options.placement };
    let mut server = start_banded(&priorities, &placement)?;
    let references = listed(&mut server, "references")?;
    let rt = RtConfig { mapping: Arc::new(levels::MAPPING), ..RtConfig::default() };
    // A connection for each client, also where all of them are in one band.
    let orb = Orb::builder().real_time(rt).limits(limits()).connections_per_server(priorities.len().max(1)).build();
    let orb = orb.map_err(|error| Failure::new(error.to_string()))?;
    let config = "a lane for each level".to_owned();
    let made = Made::Banded(orb, references, priorities);
    Ok(Served { peer: "Corelane", transport: Carrier::Tcp.name(), config, server, made })
}

/// omniORB's server with its thread for each connection, all of the fixed priority that is given where there are any, called by Corelane's clients.
pub(super) fn omniorb(clients: usize, carrier: Carrier, priority: u8, options: &Options) -> Result<Served, Failure> {
    let peer = options.peer(Kind::OmniOrb)?;
    let (server, reference) = peer.serve(carrier, Threads::Usual, &all_at(priority, options))?;
    Ok(Served {
        peer: "omniORB",
        transport: carrier.name(),
        config: format!("thread per connection, at {priority}"),
        server,
        made: Made::Orb(client_orb(clients)?, vec![reference], Connections::Each),
    })
}

fn corelane(
    config: String,
    carrier: Carrier,
    server: Service,
    references: Vec<String>,
    clients: usize,
) -> Result<Served, Failure> {
    let made = Made::Orb(client_orb(clients)?, references, Connections::Each);
    Ok(Served { peer: "Corelane", transport: carrier.name(), config, server, made })
}

fn listed(server: &mut Service, ask: &str) -> Result<Vec<String>, Failure> {
    Ok(server.ask(ask, PATIENCE)?.split(' ').map(str::to_owned).collect())
}
