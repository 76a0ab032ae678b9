//! The benchmark `demux`: does finding the object and the operation take longer where there are more of them?

use corelane::mapping::Operation as Name;
use corelane::{Orb, Reference};

use crate::Failure;
use crate::harness::{Along, Compare, Group, Label, Progress, Variant, measure};
use crate::options::Options;
use crate::orb::client::{Names, Rounds, object};
use crate::orb::generated::cubit::CountedTargetRef;
use crate::orb::server::{Keys, Scatter};
use crate::orb::wide::WIDTHS;
use crate::report::{Report, Value};
use crate::server::{start_many, start_operations};
use crate::service::Service;

/// Numbers of objects that are compared; the first is the baseline.
const OBJECTS: [usize; 5] = [1, 100, 10_000, 100_000, 1_000_000];

/// References of `same` targets, fewer than the processor's caches hold.
const SAME: usize = 64;

/// References of random targets: more than the caches of one core hold, the same number for every server.
const RANDOM: usize = 16_384;

/// Octets that an active object may take besides its servant.
const MOST_OCTETS: f64 = 160.0;

/// How long a server of a million objects may take to list references.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Objects, then operations.
pub(crate) fn demux(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let orb = Orb::new().map_err(|error| Failure::new(error.to_string()))?;
    for keys in Keys::ALL {
        objects(&orb, keys, options, report, progress)?;
    }
    operations(&orb, options, report, progress)
}

fn objects(
    orb: &Orb,
    keys: Keys,
    options: &Options,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut servers = Vec::with_capacity(OBJECTS.len());
    for count in OBJECTS {
        progress.show(&format!("demux: activating {count} objects"));
        servers.push((count, start_many(count, keys, &options.placement)?));
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
        // Below this the pages of other things are most of what is seen.
        if *count >= 10_000 {
            let octets = server.ask("octets", PATIENCE)?;
            let value = octets.parse().map_err(|_| Failure::new(format!("`{octets}` is no number of octets")))?;
            values.push(Value {
                label: label("", objects_text(*count, keys), keys.name(), ("objects", *count)),
                what: "resident memory per active object".into(),
                value,
                unit: "octets",
                bound: Some(MOST_OCTETS),
            });
        }
    }
    let title = format!("demux, memory of active objects with {} keys, besides their servants", keys.name());
    report.values(&title, &values)
}

fn objects_text(count: usize, keys: Keys) -> String {
    format!("{count} object{}, {}", if count == 1 { "" } else { "s" }, keys.name())
}

fn rounds(orb: &Orb, server: &mut Service, word: &str, number: usize) -> Result<Rounds, Failure> {
    let line = server.ask(&format!("{word} {number}"), PATIENCE)?;
    let targets = line.split(' ').map(|text| Ok(CountedTargetRef::from_object(object(orb, text)?)));
    let targets: Vec<CountedTargetRef> = targets.collect::<Result<_, Failure>>()?;
    if targets.len() != number {
        return Err(Failure::new(format!("the server lists {} references, not {number}", targets.len())));
    }
    // A reference's first call finds its connection; that is not to be measured.
    for target in &targets {
        target.echo_octet(1)?;
    }
    Ok(Rounds { targets, next: 0, server: server.pid() })
}

fn operations(orb: &Orb, options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let mut servers = Vec::with_capacity(WIDTHS.len());
    for width in WIDTHS {
        let (server, reference) = start_operations(width, &options.placement)?;
        servers.push((width, server, object(orb, &reference)?));
    }
    // They live as long as the program: operations are statics to the ORB.
    let names: Vec<&'static Name> = (0..WIDTHS[WIDTHS.len() - 1])
        .map(|number| &*Box::leak(Box::new(Name::new(format!("op_{number:03}").leak()))))
        .collect();
    for op in ["first operation", "random operations"] {
        let mut variants = Vec::with_capacity(servers.len());
        for (width, server, object) in &servers {
            let chosen = Scatter::new().take(RANDOM).map(|number| match op {
                "first operation" => names[0],
                _ => names[number as usize % width],
            });
            let subject = Names { object: object.clone(), operations: chosen.collect(), next: 0, server: server.pid() };
            let config = format!("{width} operation{}", if *width == 1 { "" } else { "s" });
            let label = label(op, config, op, ("operations", *width));
            variants.push(Variant { label, subject: Box::new(subject), against: Vec::new() });
        }
        compare(format!("demux, {op} of 1 to 1,000"), variants, options, report, progress)?;
    }
    Ok(())
}

/// The first variant is the baseline of all others.
fn compare(
    title: String,
    mut variants: Vec<Variant>,
    options: &Options,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    variants.iter_mut().skip(1).for_each(|variant| variant.against = vec![0]);
    let mut group = Group { title, compare: Compare::Median, variants };
    let figures = measure(&mut group, &options.extent, &options.placement, progress)?;
    report.figures(&group.title, group.compare, &figures)
}

fn label(op: &str, config: String, series: &str, (axis, x): (&'static str, usize)) -> Label {
    let along = Some(Along { series: series.to_owned(), axis, x: x as u64 });
    Label { bench: "demux", peer: "Corelane", transport: "tcp", op: op.to_owned(), config, along }
}
