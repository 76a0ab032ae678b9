//! The benchmark `protocol`, which compares messages of equal size: with the types of the IDL, and
//! as an octet sequence (Schmidt's slides of 1999).

use crate::Failure;
use crate::baseline::{BaselineTransport, WaitStrategy};
use crate::harness::{ComparedQuantity, FigureLabel, Group, Progress, Variant};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{StubCalls, target};
use crate::orb::{ServerArchitecture, client_orb};
use crate::peer::{PeerInvocation, PeerKind, PeerThreads};
use crate::report::Report;
use crate::testbed::{Baseline, CorelaneServer};
use crate::workload::message_sizes;

const DEFAULT_OPERATIONS: [MeasuredOperation; 3] =
    [MeasuredOperation::Longs(4), MeasuredOperation::Longs(1024), MeasuredOperation::Structs(1024)];

pub(crate) fn protocol(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let omniorb = options
        .peer(PeerKind::OmniOrb)
        .and_then(|peer| Ok((peer.serve(BaselineTransport::Tcp, PeerThreads::Default, &options.placement)?, peer)));
    let omniorb = report.or_report_missing("protocol", PeerKind::OmniOrb.name(), omniorb)?;
    let orb = client_orb(0)?;
    let blocking = Baseline::start(BaselineTransport::Tcp, WaitStrategy::Blocking, options)?;
    for operation in options.operations_or(&DEFAULT_OPERATIONS) {
        let Some(octets) = operation.equally_sized_octets() else {
            let reason =
                format!("{operation}: it is a oneway, or its message is smaller than that of any octet sequence");
            report.add_missing("protocol", "Corelane", &reason)?;
            continue;
        };
        let sizes = message_sizes(&orb, operation, options)?;
        let server = CorelaneServer::start_one(BaselineTransport::Tcp, ServerArchitecture::PerConnection, options)?;
        let mut variants = Vec::new();
        variants.extend(blocking.variant("protocol", operation, sizes)?);
        for (called, how) in [(operation, "with marshalling"), (octets, "as octets")] {
            let label = |peer, config: &str| FigureLabel {
                bench: "protocol",
                peer,
                transport: "tcp",
                op: operation.to_string(),
                config: format!("{how}, {config}"),
                axis_point: None,
            };
            let target = target(&orb, &server.reference)?;
            let calls = StubCalls { target, operation: called, server: server.server.pid() };
            let ours = label("Corelane", &server.config());
            variants.push(Variant { label: ours, subject: Box::new(calls), against: vec![0] });
            if let Some(((server, reference), peer)) = &omniorb {
                let calls = peer.client(reference, called, server.pid(), PeerInvocation::Stubs, &options.placement);
                let calls = report.or_report_missing("protocol", "omniORB", calls)?;
                let label = label("omniORB", "as it comes");
                variants.extend(calls.map(|calls| Variant { label, subject: Box::new(calls), against: vec![0] }));
            }
        }
        let title = format!("protocol: {operation} and as many octets");
        let group = Group { title, compare: ComparedQuantity::Median, variants };
        report.measure(group, &options.run_length, &options.placement, progress)?;
    }
    Ok(())
}
