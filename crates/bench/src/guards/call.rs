//! The benchmarks `floor` and `call`, which measure two-way calls of single operations, and floods
//! of oneways.

use crate::Failure;
use crate::baseline::{BaselineTransport, MessageSizes};
use crate::harness::{FigureLabel, Group, Progress, Variant};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client_orb;
use crate::peer::{PeerKind, PeerThreads};
use crate::report::Report;
use crate::testbed::{
    PeerServer, Testbed, baselines_and_streams, prefix_transport, report_missing_spin, transport_of_other_orbs,
};
use crate::workload::{compared_quantity, message_sizes, run_length};

pub(crate) fn floor(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let orb = client_orb(0)?;
    let mut all = Vec::new();
    for transport in BaselineTransport::ALL {
        report_missing_spin("floor", transport, options, report)?;
        all.extend(baselines_and_streams(transport, options)?);
    }
    for operation in options.operations_or(&MeasuredOperation::DEFAULT_OPERATIONS) {
        let sizes = message_sizes(&orb, operation, options)?;
        let mut variants = Vec::new();
        for floor in &all {
            variants.extend(floor.variant("floor", operation, sizes)?.map(|mut variant| {
                prefix_transport(&mut variant.label);
                variant
            }));
        }
        let labels: Vec<_> = variants.iter().map(|variant| variant.label.clone()).collect();
        for (index, variant) in variants.iter_mut().enumerate().skip(1) {
            variant.against = vec![0];
            if variant.label.peer == "net" {
                // A stream is compared with bare sockets or memory of its transport. Over shared
                // memory it is also compared with streams over Unix sockets.
                let unix = variant.label.transport == BaselineTransport::SharedMemory.name();
                let is_compared = |other: &FigureLabel| match other.transport {
                    name if name == variant.label.transport => other.peer == "floor",
                    name => unix && name == BaselineTransport::Unix.name() && other.peer == "net",
                };
                variant.against.extend((1..index).filter(|&other| is_compared(&labels[other])));
            }
        }
        let title = format!("floor {operation}: {} octets there, {} back", sizes.request, sizes.reply);
        run(title, operation, sizes, variants, options, report, progress)?;
    }
    Ok(())
}

pub(crate) fn call(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    progress.show("omniORB's program: building");
    let omniorb = options.peer(PeerKind::OmniOrb);
    progress.clear();
    let omniorb = report.or_report_missing("call", PeerKind::OmniOrb.name(), omniorb)?;
    let orb = client_orb(0)?;
    let operations = options.operations_or(&MeasuredOperation::DEFAULT_OPERATIONS).into_iter();
    let sizes = operations.map(|operation| Ok((operation, message_sizes(&orb, operation, options)?)));
    let sizes: Vec<(MeasuredOperation, MessageSizes)> = sizes.collect::<Result<_, Failure>>()?;
    for transport in options.transports() {
        let mut others = Vec::new();
        for (threads, config) in [(PeerThreads::Default, "thread per connection"), (PeerThreads::Pool, "pool")] {
            // Over shared memory, only omniORB's thread per connection is measured.
            if let Some(peer) = &omniorb
                && (transport != BaselineTransport::SharedMemory || threads == PeerThreads::Default)
            {
                let other = PeerServer::start(peer, transport_of_other_orbs(transport), threads, config, options);
                others.extend(report.or_report_missing("call", peer.kind().name(), other)?);
            }
        }
        report_missing_spin("call", transport, options, report)?;
        let scene = Testbed::start("call", transport, others, options)?;
        for &(operation, sizes) in &sizes {
            let cast = scene.variant_group(&orb, operation, sizes, options, report)?;
            let name = transport.name();
            let title = format!("call {operation} over {name}: {} octets there, {} back", sizes.request, sizes.reply);
            run(title, operation, sizes, cast.variants, options, report, progress)?;
        }
    }
    Ok(())
}

fn run(
    title: String,
    operation: MeasuredOperation,
    sizes: MessageSizes,
    variants: Vec<Variant>,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let group = Group { title, compare: compared_quantity(operation), variants };
    report.measure(group, &run_length(options.run_length, sizes), &options.placement, progress).map(drop)
}
