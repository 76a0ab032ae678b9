//! The benchmarks `floor` and `call`: round trips of single operations, and floods of oneways.

use corelane::Orb;

use crate::Failure;
use crate::cubit::extent;
use crate::floor::{Carrier, Sizes};
use crate::harness::{Compare, Group, Progress, Variant};
use crate::operation::Operation;
use crate::options::Options;
use crate::orb::client::object;
use crate::orb::server::LOOPBACK;
use crate::orb::{Architecture, client_orb, relay};
use crate::peer::{Kind, Threads};
use crate::report::Report;
use crate::scene::{Other, Scene, carrier_of_others, floors, name_transport, no_spin};
use crate::server::start_echo;

/// Medians, or for what is sent without waiting the rate.
pub(crate) fn compare(operation: Operation) -> Compare {
    if operation.is_oneway() { Compare::Rate } else { Compare::Median }
}

/// Bare sockets and memory with the message sizes of the operations.
pub(crate) fn floor(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let orb = client_orb(0)?;
    let mut all = Vec::new();
    for carrier in Carrier::ALL {
        no_spin("floor", carrier, options, report)?;
        all.extend(floors(carrier, options)?);
    }
    for operation in options.operations_or(&Operation::USUAL) {
        let sizes = message_sizes(&orb, operation, options)?;
        let mut variants = Vec::new();
        for floor in &all {
            // Several transports in one group: the text of the table has to tell them apart.
            variants.extend(floor.variant("floor", operation, sizes)?.map(|mut variant| {
                name_transport(&mut variant.label);
                variant
            }));
        }
        // The first is the baseline: TCP, blocking.
        variants.iter_mut().skip(1).for_each(|variant| variant.against = vec![0]);
        let title = format!("floor {operation}: {} octets there, {} back", sizes.request, sizes.reply);
        run(title, operation, sizes, variants, options, report, progress)?;
    }
    Ok(())
}

/// Calls through ORBs, against bare sockets with messages of the same sizes.
pub(crate) fn call(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    progress.show("omniORB's program: building");
    let omniorb = options.peer(Kind::OmniOrb);
    progress.clear();
    let omniorb = report.found("call", Kind::OmniOrb.name(), omniorb)?;
    let orb = client_orb(0)?;
    let operations = options.operations_or(&Operation::USUAL).into_iter();
    let sizes = operations.map(|operation| Ok((operation, message_sizes(&orb, operation, options)?)));
    let sizes: Vec<(Operation, Sizes)> = sizes.collect::<Result<_, Failure>>()?;
    for carrier in options.carriers() {
        let mut others = Vec::new();
        for (threads, config) in [(Threads::Usual, "thread per connection"), (Threads::Pool, "pool")] {
            // Beside shared memory only what is nearest to it.
            if let Some(peer) = &omniorb
                && (carrier != Carrier::SharedMemory || threads == Threads::Usual)
            {
                let other = Other::start(peer, carrier_of_others(carrier), threads, config, options);
                others.extend(report.found("call", peer.kind().name(), other)?);
            }
        }
        no_spin("call", carrier, options, report)?;
        let scene = Scene::start("call", carrier, others, options)?;
        for &(operation, sizes) in &sizes {
            let cast = scene.cast(&orb, operation, sizes, options, report)?;
            let name = carrier.name();
            let title = format!("call {operation} over {name}: {} octets there, {} back", sizes.request, sizes.reply);
            run(title, operation, sizes, cast.variants, options, report, progress)?;
        }
    }
    Ok(())
}

/// What goes over the wire for an operation, seen by a relay: octets do not depend on the transport.
pub(crate) fn message_sizes(orb: &Orb, operation: Operation, options: &Options) -> Result<Sizes, Failure> {
    let (_server, reference) = start_echo(Architecture::PerConnection, LOOPBACK, &options.placement)?;
    relay::sizes(orb, &object(orb, &reference)?, operation)
}

fn run(
    title: String,
    operation: Operation,
    sizes: Sizes,
    variants: Vec<Variant>,
    options: &Options,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let group = Group { title, compare: compare(operation), variants };
    report.measure(group, &extent(options.extent, sizes), &options.placement, progress).map(drop)
}
