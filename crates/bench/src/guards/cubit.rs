//! The benchmark `cubit`, which repeats the IDL_Cubit test of the papers.
//!
//! One client makes calls without pauses, with arguments of every kind, through Corelane, other
//! ORBs and bare sockets.

use corelane::Orb;

use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::{AxisPoint, ComparedQuantity, Figure, FigureLabel, Group, MeasuredSubject, Progress, Variant};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::object;
use crate::orb::client_orb;
use crate::orb::dynamic::DynamicCalls;
use crate::peer::{PeerKind, PeerThreads};
use crate::report::Report;
use crate::testbed::{PeerServer, Testbed, VariantGroup, report_missing_spin, transport_of_other_orbs};
use crate::value::{MICROSECONDS_PER_CALL, SingleValue};
use crate::workload::{compared_quantity, message_sizes, run_length};

const DEFAULT_OPERATIONS: [MeasuredOperation; 18] = [
    MeasuredOperation::EmptyCall,
    MeasuredOperation::Octet,
    MeasuredOperation::Short,
    MeasuredOperation::Long,
    MeasuredOperation::Struct,
    MeasuredOperation::Longs(4),
    MeasuredOperation::Longs(1024),
    MeasuredOperation::Longs(65_536),
    MeasuredOperation::Structs(4),
    MeasuredOperation::Structs(1024),
    MeasuredOperation::Structs(65_536),
    MeasuredOperation::Octets(1024),
    MeasuredOperation::Octets(1 << 20),
    MeasuredOperation::Octets(16 << 20),
    // `TakeLongs` and `TakeOctets` do not return their argument, so the server makes no copy.
    MeasuredOperation::TakeLongs(1024),
    MeasuredOperation::TakeOctets(1024),
    MeasuredOperation::TakeOctets(16 << 20),
    MeasuredOperation::Oneway,
];

pub(crate) fn cubit(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let mut peers = Vec::new();
    for kind in [PeerKind::OmniOrb, PeerKind::JacOrb, PeerKind::Ice] {
        progress.show(&format!("cubit: building {kind}'s program"));
        let built = options.peer(kind);
        progress.clear();
        peers.extend(report.or_report_missing("cubit", kind.name(), built)?);
    }
    let operations = options.operations_or(&DEFAULT_OPERATIONS);
    for transport in options.transports() {
        let (theirs, mut others) = (transport_of_other_orbs(transport), Vec::new());
        for peer in &peers {
            let started = match peer.kind().supports(theirs) {
                true => PeerServer::start(peer, theirs, PeerThreads::Default, "as it comes", options),
                false => Err(Failure::new(format!("{}: it has TCP only", transport.name()))),
            };
            others.extend(report.or_report_missing("cubit", peer.kind().name(), started)?);
        }
        report_missing_spin("cubit", transport, options, report)?;
        let all = one_by_one("cubit", transport, others, &operations, options, report, progress)?;
        let over =
            if transport == BaselineTransport::Tcp { String::new() } else { format!(" over {}", transport.name()) };
        report.add_values(&format!("cubit{over}: by operation"), &side_by_side(&all))?;
        let transfer = transfer(&all);
        if !transfer.is_empty() {
            report.add_values(&format!("cubit{over}: octet sequences"), &transfer)?;
        }
    }
    Ok(())
}

pub(crate) fn sizes(
    bench: &'static str,
    operations: &[MeasuredOperation],
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let all = one_by_one(bench, BaselineTransport::Tcp, Vec::new(), operations, options, report, progress)?;
    report.add_values(&format!("{bench}: octet sequences"), &transfer(&all))
}

fn one_by_one(
    bench: &'static str,
    transport: BaselineTransport,
    others: Vec<PeerServer>,
    operations: &[MeasuredOperation],
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<Vec<(MeasuredOperation, Vec<Figure>)>, Failure> {
    let orb = client_orb(0)?;
    let scene = Testbed::start(bench, transport, others, options)?;
    let mut all = Vec::new();
    for &operation in operations {
        let sizes = message_sizes(&orb, operation, options)?;
        let mut cast = scene.variant_group(&orb, operation, sizes, options, report)?;
        if bench == "cubit" {
            add_dynamic(&scene, &mut cast, &orb, operation, options, report)?;
        }
        let over =
            if transport == BaselineTransport::Tcp { String::new() } else { format!(" over {}", transport.name()) };
        let title = format!("{bench} {operation}{over}: {} octets there, {} back", sizes.request, sizes.reply);
        let group = Group { title, compare: compared_quantity(operation), variants: cast.variants };
        let figures = report.measure(group, &run_length(options.run_length, sizes), &options.placement, progress)?;
        all.push((operation, figures));
    }
    Ok(all)
}

/// Adds variants with dynamic invocation of omniORB and of Corelane. Each is compared with the
/// baseline and with calls through stubs of its ORB. Corelane's variant is also compared with
/// omniORB's.
fn add_dynamic(
    scene: &Testbed,
    cast: &mut VariantGroup,
    orb: &Orb,
    operation: MeasuredOperation,
    options: &BenchOptions,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    let mut add = |stubs: usize, subject: Box<dyn MeasuredSubject + Send>, other: Option<usize>| {
        let Variant { label, against, .. } = &cast.variants[stubs];
        let label = FigureLabel { config: format!("{}, dynamic invocation", label.config), ..label.clone() };
        let against = against.first().copied().into_iter().chain([stubs]).chain(other).collect();
        cast.variants.push(Variant { label, subject, against });
        cast.variants.len() - 1
    };
    let mut theirs = None;
    if let (Some(stubs), Some(calls)) = (cast.omniorb, scene.dynamic(operation, options)) {
        let calls = report.or_report_missing("cubit", PeerKind::OmniOrb.name(), calls)?;
        theirs = calls.map(|calls| add(stubs, Box::new(calls), None));
    }
    if let Some(server) = cast.servers.first() {
        let object = object(orb, &server.reference)?;
        let calls = DynamicCalls { object, operation, server: server.server.pid() };
        add(cast.first, Box::new(calls), theirs);
    }
    Ok(())
}

fn side_by_side(all: &[(MeasuredOperation, Vec<Figure>)]) -> Vec<SingleValue> {
    let values = all.iter().flat_map(|(operation, figures)| {
        figures.iter().map(move |figure| SingleValue {
            label: FigureLabel { op: String::new(), ..figure.label.clone() },
            quantity: operation.to_string(),
            value: match compared_quantity(*operation) {
                ComparedQuantity::Median => figure.summary.p50_us,
                ComparedQuantity::Rate => 1e6 / figure.summary.per_s,
            },
            unit: MICROSECONDS_PER_CALL,
            bound: None,
        })
    });
    values.collect()
}

fn transfer(all: &[(MeasuredOperation, Vec<Figure>)]) -> Vec<SingleValue> {
    let mut values = Vec::new();
    for (operation, figures) in all {
        let (length, quantity) = match *operation {
            MeasuredOperation::Octets(length) => (length, "there, and as many back"),
            MeasuredOperation::TakeOctets(length) => (length, "there, and nothing back"),
            _ => continue,
        };
        for figure in figures {
            let axis_point = AxisPoint { series: figure.label.config.clone(), axis: "octets", x: length as u64 };
            values.push(SingleValue {
                label: FigureLabel { axis_point: Some(axis_point), ..figure.label.clone() },
                quantity: quantity.to_owned(),
                value: length as f64 / f64::from(1 << 20) / (figure.summary.p50_us / 1e6),
                unit: "MiB/s",
                bound: None,
            });
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Summary;
    use std::time::Duration;

    #[test]
    fn transfer_rates_are_computed_from_medians_or_from_oneway_rates() {
        let figure = |operation: MeasuredOperation| Figure {
            label: FigureLabel {
                bench: "cubit",
                peer: "Corelane",
                transport: "tcp",
                op: operation.to_string(),
                config: "reactive".to_owned(),
                axis_point: None,
            },
            summary: Summary::of(&[1_000_000; 4], Duration::from_secs(2)).unwrap(),
            medians_us: Vec::new(),
            cdf_us: Vec::new(),
            ratios: Vec::new(),
            cost: None,
            calls: 4,
        };
        let octets = MeasuredOperation::Octets(1 << 20);
        let taken = MeasuredOperation::TakeOctets(1 << 20);
        let all = [octets, MeasuredOperation::Oneway, taken].map(|operation| (operation, vec![figure(operation)]));
        let table = side_by_side(&all);
        assert_eq!((table[0].value, table[1].value), (1000.0, 500_000.0));
        let transfer = transfer(&all);
        assert_eq!((transfer.len(), transfer[0].value, transfer[1].value), (2, 1000.0, 1000.0));
        assert!(transfer[0].quantity.ends_with("as many back") && transfer[1].quantity.ends_with("nothing back"));
        assert_eq!(transfer[0].label.axis_point.as_ref().unwrap().x, 1 << 20);
    }
}
