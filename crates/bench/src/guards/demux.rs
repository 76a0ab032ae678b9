//! The benchmark `demux`, which measures the time in which a server finds the target of a request.

use corelane::Orb;
use corelane::mapping::Operation as Name;
use corelane::rt::RtClientPolicies;
use corelane_sys::process;

use crate::Failure;
use crate::address::LOOPBACK;
use crate::harness::{AxisPoint, ComparedQuantity, FigureLabel, Group, Progress, Variant};
use crate::launch::{
    start_echo, start_server_with_nested_poa, start_server_with_objects, start_server_with_operations,
};
use crate::options::BenchOptions;
use crate::orb::client::{ObjectCycle, OperationCycle, object};
use crate::orb::generated::cubit::CountedTargetRef;
use crate::orb::keys::KeyLifetime;
use crate::orb::server::PseudoRandom;
use crate::orb::wide::WIDTHS;
use crate::orb::{ServerArchitecture, client_orb};
use crate::report::Report;
use crate::service::RunningProgram;
use crate::value::SingleValue;

const OBJECTS: [usize; 5] = [1, 100, 10_000, 100_000, 1_000_000];

const SAME: usize = 64;

/// Number of random references or operations in a cycle.
const RANDOM: usize = 16_384;

/// Maximum resident memory in bytes of an active object without its servant.
const MAX_OCTETS: f64 = 160.0;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

const CONNECTIONS: [usize; 4] = [1, 10, 100, 1000];

const DEPTHS: [usize; 5] = [0, 1, 4, 16, 64];

pub(crate) fn demux(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    connections(options, report, progress)?;
    let orb = Orb::new().map_err(|error| Failure::new(error.to_string()))?;
    for keys in [KeyLifetime::Transient, KeyLifetime::Persistent] {
        depths(&orb, keys, options, report, progress)?;
    }
    for keys in KeyLifetime::ALL {
        objects(&orb, keys, options, report, progress)?;
    }
    operations(&orb, options, report, progress)
}

fn connections(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let orb = client_orb(CONNECTIONS.iter().sum())?;
    let wanted = CONNECTIONS.iter().sum::<usize>() as u64 + 300;
    let limit = process::raise_descriptor_limit(wanted).unwrap_or(0);
    let private = RtClientPolicies { private_connection: true, ..RtClientPolicies::default() };
    let architecture = ServerArchitecture::LeaderFollowers(options.threads);
    let (mut variants, mut servers) = (Vec::new(), Vec::new());
    for count in CONNECTIONS {
        progress.show(&format!("demux: {count} connections"));
        if limit < wanted && count > 100 {
            let reason = format!("{count} connections: the process may have {limit} open descriptors (ulimit -n)");
            report.add_missing("demux", "Corelane", &reason)?;
            continue;
        }
        let (server, reference) = start_echo(architecture, LOOPBACK, &options.placement)?;
        let targets = (0..count).map(|_| {
            let target = CountedTargetRef::from_object(object(&orb, &reference)?.with_rt_policies(&private)?);
            target.echo_octet(1)?;
            Ok(target)
        });
        let targets: Vec<CountedTargetRef> = targets.collect::<Result<_, Failure>>()?;
        let config = format!("{count} connection{}", if count == 1 { "" } else { "s" });
        let label = label("connections in turn", config, &architecture.config(), ("connections", count));
        let subject = Box::new(ObjectCycle { targets, next: 0, server: server.pid() });
        variants.push(Variant { label, subject, against: Vec::new() });
        servers.push(server);
    }
    compare("demux, calls on 1 to 1,000 connections in turn".to_owned(), variants, options, report, progress)
}

fn depths(
    orb: &Orb,
    keys: KeyLifetime,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let (mut variants, mut servers) = (Vec::new(), Vec::new());
    // Persistent objects need a POA below the root POA.
    let depths = DEPTHS.into_iter().filter(|&depth| keys == KeyLifetime::Transient || depth > 0);
    for depth in depths {
        let (server, reference) = start_server_with_nested_poa(depth, keys, &options.placement)?;
        let targets = vec![CountedTargetRef::from_object(object(orb, &reference)?)];
        let config = format!("{depth} POA{} below the root, {}", if depth == 1 { "" } else { "s" }, keys.name());
        let label = label("POA depth", config, keys.name(), ("POAs below the root", depth));
        variants.push(Variant {
            label,
            subject: Box::new(ObjectCycle { targets, next: 0, server: server.pid() }),
            against: Vec::new(),
        });
        servers.push(server);
    }
    compare(format!("demux, POAs up to 64 below the root, {} keys", keys.name()), variants, options, report, progress)
}

fn objects(
    orb: &Orb,
    keys: KeyLifetime,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut servers = Vec::with_capacity(OBJECTS.len());
    for count in OBJECTS {
        progress.show(&format!("demux: activating {count} objects"));
        servers.push((count, start_server_with_objects(count, keys, &options.placement)?));
    }
    for (word, number, op) in [("same", SAME, "64 targets"), ("random", RANDOM, "random targets")] {
        let mut variants = Vec::with_capacity(servers.len());
        for (count, server) in &mut servers {
            progress.show(&format!("demux: references of {count} objects"));
            let label = label(op, objects_text(*count, keys), keys.name(), ("objects", *count));
            let subject = Box::new(rounds(orb, server, word, number)?);
            variants.push(Variant { label, subject, against: Vec::new() });
        }
        compare(
            format!("demux, {op} of 1 to 1,000,000 objects, {} keys", keys.name()),
            variants,
            options,
            report,
            progress,
        )?;
    }
    let mut values = Vec::new();
    for (count, server) in &mut servers {
        // With fewer objects, memory pages with other data would dominate the figure.
        if *count >= 10_000 {
            let octets = server.ask("octets", PATIENCE)?;
            let value = octets.parse().map_err(|_| Failure::new(format!("`{octets}` is not a number of octets")))?;
            values.push(SingleValue {
                label: label("", objects_text(*count, keys), keys.name(), ("objects", *count)),
                quantity: "resident memory per active object".into(),
                value,
                unit: "octets",
                bound: Some(MAX_OCTETS),
            });
        }
    }
    let title = format!("demux, memory of active objects with {} keys, besides their servants", keys.name());
    report.add_values(&title, &values)
}

fn objects_text(count: usize, keys: KeyLifetime) -> String {
    format!("{count} object{}, {}", if count == 1 { "" } else { "s" }, keys.name())
}

fn rounds(orb: &Orb, server: &mut RunningProgram, word: &str, number: usize) -> Result<ObjectCycle, Failure> {
    let line = server.ask(&format!("{word} {number}"), PATIENCE)?;
    let targets = line.split(' ').map(|text| Ok(CountedTargetRef::from_object(object(orb, text)?)));
    let targets: Vec<CountedTargetRef> = targets.collect::<Result<_, Failure>>()?;
    if targets.len() != number {
        return Err(Failure::new(format!("the server lists {} references, not {number}", targets.len())));
    }
    // The first call on a reference looks up its connection, so it is not measured.
    for target in &targets {
        target.echo_octet(1)?;
    }
    Ok(ObjectCycle { targets, next: 0, server: server.pid() })
}

fn operations(
    orb: &Orb,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut servers = Vec::with_capacity(WIDTHS.len());
    for width in WIDTHS {
        let (server, reference) = start_server_with_operations(width, &options.placement)?;
        servers.push((width, server, object(orb, &reference)?));
    }
    // The ORB requires operation names of static lifetime.
    let names: Vec<&'static Name> = (0..WIDTHS[WIDTHS.len() - 1])
        .map(|number| &*Box::leak(Box::new(Name::new(format!("op_{number:03}").leak()))))
        .collect();
    for op in ["first operation", "random operations"] {
        let mut variants = Vec::with_capacity(servers.len());
        for (width, server, object) in &servers {
            let chosen = PseudoRandom::new().take(RANDOM).map(|number| match op {
                "first operation" => names[0],
                _ => names[number as usize % width],
            });
            let subject =
                OperationCycle { object: object.clone(), operations: chosen.collect(), next: 0, server: server.pid() };
            let config = format!("{width} operation{}", if *width == 1 { "" } else { "s" });
            let label = label(op, config, op, ("operations", *width));
            variants.push(Variant { label, subject: Box::new(subject), against: Vec::new() });
        }
        compare(format!("demux, {op} of 1 to 1,000"), variants, options, report, progress)?;
    }
    Ok(())
}

fn compare(
    title: String,
    mut variants: Vec<Variant>,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    variants.iter_mut().skip(1).for_each(|variant| variant.against = vec![0]);
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    report.measure(group, &options.run_length, &options.placement, progress).map(drop)
}

fn label(op: &str, config: String, series: &str, (axis, x): (&'static str, usize)) -> FigureLabel {
    let axis_point = Some(AxisPoint { series: series.to_owned(), axis, x: x as u64 });
    FigureLabel { bench: "demux", peer: "Corelane", transport: "tcp", op: op.to_owned(), config, axis_point }
}
