//! The benchmarks `floor` and `call`: round trips of single operations, and floods of oneways.

use corelane::Orb;

use crate::Failure;
use crate::floor::{Carrier, Exchange, FloorClient, OnewayFlood, Sizes, Waiting, address_of};
use crate::harness::{Compare, Group, Label, Progress, Subject, Variant, measure};
use crate::operation::Operation;
use crate::options::Options;
use crate::orb::Architecture;
use crate::orb::client::{Calls, object, target};
use crate::orb::relay;
use crate::orb::server::{LOOPBACK, free_address};
use crate::peer::{Kind, Peer, Threads};
use crate::report::Report;
use crate::server::{start_echo, start_floor};
use crate::service::Service;

/// A floor server and where it listens.
pub(crate) struct Floor {
    carrier: Carrier,
    config: String,
    server: Service,
    address: String,
    /// It serves oneways.
    drains: bool,
}

impl Floor {
    pub(crate) fn start(carrier: Carrier, waiting: Waiting, options: &Options) -> Result<Self, Failure> {
        let (server, address) = start_floor(carrier, waiting, &options.placement)?;
        let config = match waiting {
            Waiting::Blocking => "blocking".to_owned(),
            Waiting::Epoll(threads) => format!("epoll, {threads} threads"),
        };
        Ok(Floor { carrier, config, server, address, drains: waiting == Waiting::Blocking })
    }

    /// Calls of messages of these sizes; none if this server is not made for them.
    pub(crate) fn variant(
        &self,
        bench: &'static str,
        operation: Operation,
        sizes: Sizes,
    ) -> Result<Option<Variant>, Failure> {
        if operation.is_oneway() && !self.drains {
            return Ok(None);
        }
        let client = FloorClient::connect(&address_of(&self.address)?, sizes)?;
        let server = Some(self.server.pid());
        let subject: Box<dyn Subject + Send> = match operation.is_oneway() {
            true => Box::new(OnewayFlood { client, server }),
            false => Box::new(Exchange { client, server }),
        };
        let label = Label {
            bench,
            peer: "floor",
            transport: self.carrier.name(),
            op: operation.to_string(),
            config: self.config.clone(),
            along: None,
        };
        Ok(Some(Variant { label, subject, against: Vec::new() }))
    }
}

/// Medians, or for what is sent without waiting the rate.
pub(crate) fn compare(operation: Operation) -> Compare {
    if operation.is_oneway() { Compare::Rate } else { Compare::Median }
}

/// Bare sockets with the message sizes of the operations.
pub(crate) fn floor(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let mut floors = Vec::new();
    for carrier in [Carrier::Tcp, Carrier::Unix] {
        for waiting in [Waiting::Blocking, Waiting::Epoll(options.threads)] {
            floors.push(Floor::start(carrier, waiting, options)?);
        }
    }
    for operation in options.operations_or(&Operation::USUAL) {
        let sizes = operation.sizes(options.key);
        let mut variants = Vec::new();
        for floor in &floors {
            // Two transports in one group: the text of the table has to tell them apart.
            variants.extend(floor.variant("floor", operation, sizes)?.map(|mut variant| {
                variant.label.config = format!("{}, {}", variant.label.transport, variant.label.config);
                variant
            }));
        }
        // The first is the baseline: TCP, blocking.
        variants.iter_mut().skip(1).for_each(|variant| variant.against = vec![0]);
        let title = format!("floor {operation}: {} octets there, {} back", sizes.request, sizes.reply);
        run(title, operation, variants, options, report, progress)?;
    }
    Ok(())
}

/// Calls through ORBs, against bare sockets with messages of the same sizes.
pub(crate) fn call(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let omniorb = build_omniorb(options, report, progress)?;
    let orb = Orb::new().map_err(|error| Failure::new(error.to_string()))?;
    let operations = options.operations_or(&Operation::USUAL).into_iter();
    let sizes = operations.map(|operation| Ok((operation, message_sizes(&orb, operation, options)?)));
    let sizes: Vec<(Operation, Sizes)> = sizes.collect::<Result<_, Failure>>()?;
    for carrier in options.carriers() {
        let servers = Servers::start(carrier, omniorb.as_ref(), options)?;
        for &(operation, sizes) in &sizes {
            // New ones for each operation: a flood of oneways moves its connection to other threads for good.
            let corelane = Corelane::start(carrier, options)?;
            let variants = servers.variants(&orb, &corelane, operation, sizes, options)?;
            let name = carrier.name();
            let title = format!("call {operation} over {name}: {} octets there, {} back", sizes.request, sizes.reply);
            run(title, operation, variants, options, report, progress)?;
        }
    }
    Ok(())
}

/// What goes over the wire for an operation, seen by a relay: octets do not depend on the transport.
pub(crate) fn message_sizes(orb: &Orb, operation: Operation, options: &Options) -> Result<Sizes, Failure> {
    let (_server, reference) = start_echo(Architecture::PerConnection, LOOPBACK, &options.placement)?;
    relay::sizes(orb, &object(orb, &reference)?, operation)
}

/// Everything that is called over one transport.
struct Servers {
    carrier: Carrier,
    blocking: Floor,
    epoll: Floor,
    omniorb: Vec<OmniOrbServer>,
}

/// A Corelane server.
pub(crate) struct Corelane {
    architecture: Architecture,
    pub(crate) server: Service,
    pub(crate) reference: String,
}

impl Corelane {
    /// As labels say it.
    pub(crate) fn config(&self) -> String {
        self.architecture.config()
    }

    /// Whether each connection has a thread of its own.
    pub(crate) fn is_per_connection(&self) -> bool {
        self.architecture == Architecture::PerConnection
    }

    /// One for each architecture.
    pub(crate) fn start(carrier: Carrier, options: &Options) -> Result<Vec<Self>, Failure> {
        let mut servers = Vec::new();
        for architecture in [Architecture::PerConnection, Architecture::LeaderFollowers(options.threads)] {
            let (server, reference) = start_echo(architecture, &free_address(carrier), &options.placement)?;
            servers.push(Corelane { architecture, server, reference });
        }
        Ok(servers)
    }
}

/// An omniORB server and the way it gives work to threads.
struct OmniOrbServer {
    orb: Peer,
    config: &'static str,
    server: Service,
    reference: String,
}

/// Indices of variants that others are compared with.
struct Baselines {
    blocking: usize,
    epoll: usize,
    omniorb: Option<usize>,
}

impl Servers {
    fn start(carrier: Carrier, omniorb: Option<&Peer>, options: &Options) -> Result<Self, Failure> {
        let mut servers = Vec::new();
        if let Some(orb) = omniorb {
            for (threads, config) in [(Threads::Usual, "thread per connection"), (Threads::Pool, "pool")] {
                let (server, reference) = orb.serve(carrier, threads, &options.placement)?;
                servers.push(OmniOrbServer { orb: orb.clone(), config, server, reference });
            }
        }
        Ok(Servers {
            carrier,
            blocking: Floor::start(carrier, Waiting::Blocking, options)?,
            epoll: Floor::start(carrier, Waiting::Epoll(options.threads), options)?,
            omniorb: servers,
        })
    }

    /// One group: floors first, then omniORB, then Corelane.
    fn variants(
        &self,
        orb: &Orb,
        corelane: &[Corelane],
        operation: Operation,
        sizes: Sizes,
        options: &Options,
    ) -> Result<Vec<Variant>, Failure> {
        let mut variants = Vec::new();
        variants.extend(self.blocking.variant("call", operation, sizes)?);
        let mut baselines = Baselines { blocking: 0, epoll: 0, omniorb: None };
        if let Some(epoll) = self.epoll.variant("call", operation, sizes)? {
            baselines.epoll = variants.len();
            variants.push(epoll);
        }
        for server in &self.omniorb {
            baselines.omniorb.get_or_insert(variants.len());
            let calls = server.orb.client(&server.reference, operation, server.server.pid(), &options.placement)?;
            let label = self.label("omniORB", operation, server.config.to_owned());
            variants.push(Variant { label, subject: Box::new(calls), against: vec![baselines.blocking] });
        }
        for server in corelane {
            let target = target(orb, &server.reference)?;
            let calls = Calls { target, operation, server: server.server.pid() };
            let floor = match server.architecture {
                Architecture::PerConnection | Architecture::Reactive => baselines.blocking,
                Architecture::LeaderFollowers(_) | Architecture::HalfSync(_) => baselines.epoll,
            };
            let against = std::iter::once(floor).chain(baselines.omniorb).collect();
            let label = self.label("Corelane", operation, server.architecture.config());
            variants.push(Variant { label, subject: Box::new(calls), against });
        }
        Ok(variants)
    }

    fn label(&self, peer: &'static str, operation: Operation, config: String) -> Label {
        Label { bench: "call", peer, transport: self.carrier.name(), op: operation.to_string(), config, along: None }
    }
}

/// omniORB's program; none if it is not there, which is then reported.
fn build_omniorb(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<Option<Peer>, Failure> {
    if options.without_peers {
        report.missing("call", "omniORB", "left out by --without-peers")?;
        return Ok(None);
    }
    progress.show("omniORB's program: building");
    let built = Peer::build(Kind::OmniOrb, &options.peers);
    progress.clear();
    match built {
        Ok(orb) => Ok(Some(orb)),
        Err(reason) => {
            report.missing("call", "omniORB", &reason.to_string())?;
            Ok(None)
        }
    }
}

fn run(
    title: String,
    operation: Operation,
    variants: Vec<Variant>,
    options: &Options,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut group = Group { title, compare: compare(operation), variants };
    let figures = measure(&mut group, &options.extent, &options.placement, progress)?;
    report.figures(&group.title, group.compare, &figures)
}
