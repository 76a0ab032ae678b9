//! The benchmarks `floor` and `call`: round trips of single operations, and floods of oneways.

use crate::Failure;
use crate::floor::{Carrier, Exchange, FloorClient, OnewayFlood, Sizes, Waiting, address_of};
use crate::harness::{Compare, Group, Label, Progress, Subject, Variant, measure};
use crate::operation::Operation;
use crate::options::Options;
use crate::peer::omniorb::{OmniOrb, Threads};
use crate::report::Report;
use crate::server::start_floor;
use crate::service::Service;

/// A floor server and where it listens.
struct Floor {
    carrier: Carrier,
    config: String,
    server: Service,
    address: String,
    /// It serves oneways.
    drains: bool,
}

impl Floor {
    fn start(carrier: Carrier, waiting: Waiting, options: &Options) -> Result<Self, Failure> {
        let (server, address) = start_floor(carrier, waiting, &options.placement)?;
        let config = match waiting {
            Waiting::Blocking => "blocking".to_owned(),
            Waiting::Epoll(threads) => format!("epoll, {threads} threads"),
        };
        Ok(Floor { carrier, config, server, address, drains: waiting == Waiting::Blocking })
    }

    /// Calls of messages of these sizes; none if this server is not made for them.
    fn variant(&self, bench: &'static str, operation: Operation, sizes: Sizes) -> Result<Option<Variant>, Failure> {
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
            config: if self.carrier == Carrier::Tcp {
                self.config.clone()
            } else {
                format!("{}, {}", self.carrier.name(), self.config)
            },
        };
        Ok(Some(Variant { label, subject, against: Vec::new() }))
    }
}

fn compare(operation: Operation) -> Compare {
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
            variants.extend(floor.variant("floor", operation, sizes)?);
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
    let floors = [
        Floor::start(Carrier::Tcp, Waiting::Blocking, options)?,
        Floor::start(Carrier::Tcp, Waiting::Epoll(options.threads), options)?,
    ];
    let omniorb = OmniOrbServers::start(options, report, progress)?;
    for operation in options.operations_or(&Operation::USUAL) {
        let sizes = operation.sizes(options.key);
        let mut variants = Vec::new();
        for floor in &floors {
            variants.extend(floor.variant("call", operation, sizes)?);
        }
        for server in &omniorb {
            variants.push(server.variant(operation, options)?);
        }
        let title = format!("call {operation}: {} octets there, {} back", sizes.request, sizes.reply);
        run(title, operation, variants, options, report, progress)?;
    }
    Ok(())
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

/// An omniORB server and the way it gives work to threads.
struct OmniOrbServers {
    orb: OmniOrb,
    config: &'static str,
    server: Service,
    reference: String,
}

impl OmniOrbServers {
    /// Both kinds; none if omniORB is not there, which is then reported.
    fn start(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<Vec<Self>, Failure> {
        if options.without_peers {
            report.missing("call", "omniORB", "left out by --without-peers")?;
            return Ok(Vec::new());
        }
        progress.show("building: omniORB's program");
        let built = OmniOrb::build(&options.peers);
        progress.clear();
        let orb = match built {
            Ok(orb) => orb,
            Err(reason) => {
                report.missing("call", "omniORB", &reason.to_string())?;
                return Ok(Vec::new());
            }
        };
        let mut servers = Vec::new();
        for (threads, config) in [(Threads::PerConnection, "thread per connection"), (Threads::Pool, "pool")] {
            let (server, reference) = orb.serve(Carrier::Tcp, threads, &options.placement)?;
            servers.push(OmniOrbServers { orb: orb.clone(), config, server, reference });
        }
        Ok(servers)
    }

    fn variant(&self, operation: Operation, options: &Options) -> Result<Variant, Failure> {
        let calls = self.orb.client(&self.reference, operation, self.server.pid(), &options.placement)?;
        let label = Label {
            bench: "call",
            peer: "omniORB",
            transport: "tcp",
            op: operation.to_string(),
            config: self.config.to_owned(),
        };
        Ok(Variant { label, subject: Box::new(calls), against: vec![0] })
    }
}
