//! The command line of `corelane bench`.

use std::ffi::OsString;
use std::path::PathBuf;

use corelane_sys::thread::Scheduling;

use crate::Failure;
use crate::floor::Carrier;
use crate::harness::Extent;
use crate::operation::Operation;
use crate::peer::{Kind, Peer};
use crate::placement::{Cores, Placement};

/// What is to be run, and how.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The benchmarks named.
    pub(crate) names: Vec<String>,
    /// Where JSON lines go.
    pub(crate) json: Option<PathBuf>,
    /// What the run is called in reports.
    pub(crate) name: Option<String>,
    /// The program through which a plan reaches other hosts.
    pub(crate) via: PathBuf,
    /// The page that `report` writes.
    pub(crate) out: PathBuf,
    /// How much is measured.
    pub(crate) extent: Extent,
    /// How far benchmarks go that have a form of their own.
    pub(crate) depth: Depth,
    /// Calls and repetitions that were asked for by number, for benchmarks that have a form of their own.
    pub(crate) asked: Asked,
    /// Where it runs.
    pub(crate) placement: Placement,
    /// Threads of a pool, floor or ORB.
    pub(crate) threads: usize,
    /// Operations to call; empty: each benchmark's own choice.
    pub(crate) operations: Vec<Operation>,
    /// What carries the messages; empty: TCP.
    pub(crate) carriers: Vec<Carrier>,
    /// The folder with the peers' sources.
    pub(crate) peers: PathBuf,
    /// The hello example's server; beside our own program if none is named.
    pub(crate) hello: Option<PathBuf>,
    /// The same server in its smallest form; in the folder of that profile if none is named.
    pub(crate) minimal: Option<PathBuf>,
    /// Leaves the peers out, which the report then says.
    pub(crate) without_peers: bool,
    /// `os` switches the kernel's preemption, for the whole machine, while it measures.
    pub(crate) preemption: bool,
    /// Takes what is missing for a failure.
    pub(crate) strict: bool,
    /// Prints help instead.
    pub(crate) help: bool,
}

/// What `--count` and `--repetitions` said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Calls per repetition.
    pub(crate) count: Option<usize>,
    /// Turns of each variant.
    pub(crate) repetitions: Option<usize>,
}

/// How far to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// A first look: seconds.
    Quick,
    /// The usual: minutes.
    Usual,
    /// As the papers did: hours.
    Full,
}

/// A first look.
const QUICK: Extent = Extent { warm_up: 200, count: 2000, repetitions: 3 };
/// The usual.
const USUAL: Extent = Extent { warm_up: 1000, count: 10_000, repetitions: 5 };
/// For figures that are published.
const FULL: Extent = Extent { warm_up: 2000, count: 50_000, repetitions: 10 };

/// Bounds what is allocated for call times to a few gigabytes in the worst case.
const MOST_CALLS: usize = 10_000_000;

impl Options {
    /// Reads the arguments behind `corelane bench run`.
    ///
    /// # Errors
    /// What does not make sense, for people.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Failure> {
        let placement = Placement::one_core()
            .map_err(|error| Failure::new(format!("the kernel does not say which cores there are: {error}")))?;
        let mut options = Options {
            names: Vec::new(),
            json: None,
            name: None,
            via: PathBuf::from("ssh"),
            out: PathBuf::from("report.html"),
            extent: USUAL,
            depth: Depth::Usual,
            asked: Asked::default(),
            placement,
            threads: 4,
            operations: Vec::new(),
            carriers: Vec::new(),
            // Where the sources were when this program was built.
            peers: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/peers")),
            hello: None,
            minimal: None,
            without_peers: false,
            preemption: false,
            strict: false,
            help: false,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let text = argument.to_string_lossy().into_owned();
            let (name, joined) = match text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(OsString::from(value))),
                _ => (text.clone(), None),
            };
            let mut value = Value { name: &name, joined, rest: &mut arguments };
            match name.as_str() {
                "--json" => options.json = Some(value.text()?.into()),
                "--out" => options.out = value.text()?.into(),
                "--name" => options.name = Some(value.text()?.to_string_lossy().into_owned()),
                "--via" => options.via = value.text()?.into(),
                "--minimal" => options.minimal = Some(value.text()?.into()),
                "--hello" => options.hello = Some(value.text()?.into()),
                "--peers" => options.peers = value.text()?.into(),
                "--quick" => (options.extent, options.depth) = (QUICK, Depth::Quick),
                "--full" => (options.extent, options.depth) = (FULL, Depth::Full),
                "--count" => options.asked.count = Some(value.number(1, MOST_CALLS)?),
                "--warm-up" => options.extent.warm_up = value.number(0, MOST_CALLS)?,
                "--repetitions" => options.asked.repetitions = Some(value.number(1, 1000)?),
                "--threads" => options.threads = value.number(1, 256)?,
                "--core" => options.placement.cores = Cores::One(value.number(0, 1023)?),
                "--cores" => options.placement.cores = value.two_cores()?,
                "--unpinned" => options.placement.cores = Cores::Any,
                "--fifo" => {
                    let priority = value.number(1, 99)?;
                    options.placement.scheduling = Some(Scheduling::Fifo(u8::try_from(priority).unwrap_or(1)));
                }
                "--op" => options.operations.push(Operation::from_name(&value.text()?.to_string_lossy())?),
                "--transport" => options.carriers.push(value.carrier()?),
                "--without-peers" => options.without_peers = true,
                "--preemption" => options.preemption = true,
                "--strict" => options.strict = true,
                "-h" | "--help" => options.help = true,
                _ if name.starts_with('-') => return Err(Failure::new(format!("there is no option `{name}`"))),
                _ => options.names.push(text),
            }
            value.unused()?;
        }
        // Whatever the order of the options: a number is meant.
        options.extent.count = options.asked.count.unwrap_or(options.extent.count);
        options.extent.repetitions = options.asked.repetitions.unwrap_or(options.extent.repetitions);
        if options.extent.count * options.extent.repetitions > MOST_CALLS {
            return Err(Failure::new(format!("--count times --repetitions is at most {MOST_CALLS}")));
        }
        Ok(options)
    }

    /// The program of another ORB, built if it has to be.
    ///
    /// # Errors
    /// It is left out, or something is missing; the text says what to do.
    pub(crate) fn peer(&self, kind: Kind) -> Result<Peer, Failure> {
        if self.without_peers {
            return Err(Failure::new("left out by --without-peers"));
        }
        Peer::build(kind, &self.peers)
    }

    /// The carriers named, or TCP.
    #[must_use]
    pub(crate) fn carriers(&self) -> Vec<Carrier> {
        if self.carriers.is_empty() { vec![Carrier::Tcp] } else { self.carriers.clone() }
    }

    /// The operations named, or those given.
    #[must_use]
    pub(crate) fn operations_or(&self, usual: &[Operation]) -> Vec<Operation> {
        if self.operations.is_empty() { usual.to_vec() } else { self.operations.clone() }
    }
}

/// The value of an option: behind `=`, or the next argument.
struct Value<'a, I> {
    name: &'a str,
    joined: Option<OsString>,
    rest: &'a mut I,
}

impl<I: Iterator<Item = OsString>> Value<'_, I> {
    fn text(&mut self) -> Result<OsString, Failure> {
        let next = self.joined.take().or_else(|| self.rest.next());
        next.ok_or_else(|| Failure::new(format!("`{}` needs a value", self.name)))
    }

    fn number(&mut self, least: usize, most: usize) -> Result<usize, Failure> {
        let text = self.text()?;
        let number = text.to_str().and_then(|text| text.parse().ok());
        number.filter(|number| (least..=most).contains(number)).ok_or_else(|| {
            let name = self.name;
            Failure::new(format!("`{name}` takes a number from {least} to {most}, not `{}`", text.to_string_lossy()))
        })
    }

    fn carrier(&mut self) -> Result<Carrier, Failure> {
        let text = self.text()?.to_string_lossy().into_owned();
        let known = Carrier::from_name(&text);
        known.ok_or_else(|| Failure::new(format!("`--transport` takes tcp, unix or shm, not `{text}`")))
    }

    fn two_cores(&mut self) -> Result<Cores, Failure> {
        let text = self.text()?.to_string_lossy().into_owned();
        let pair = text.split_once(',').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let known = |core: usize| core < corelane_sys::thread::CpuSet::CAPACITY;
        match pair {
            Some((client, server)) if known(client) && known(server) => Ok(Cores::Two(client, server)),
            _ => {
                Err(Failure::new(format!("`--cores` takes two cores, client's and server's, as in 0,1, not `{text}`")))
            }
        }
    }

    /// `--quick=yes` makes no sense.
    fn unused(self) -> Result<(), Failure> {
        match self.joined {
            Some(_) => Err(Failure::new(format!("`{}` takes no value", self.name))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Failure> {
        Options::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_and_names_mix() {
        let options =
            parse("call --quick --json=/tmp/x --op octet --op longs4 demux --cores 0,1 --fifo 5 --threads=2").unwrap();
        assert_eq!(options.names, ["call", "demux"]);
        assert_eq!(options.json, Some(PathBuf::from("/tmp/x")));
        assert_eq!(options.extent, QUICK);
        assert_eq!(options.operations, [Operation::Octet, Operation::Longs(4)]);
        let placement = Placement { cores: Cores::Two(0, 1), scheduling: Some(Scheduling::Fifo(5)) };
        assert_eq!(options.placement, placement);
        assert_eq!(options.threads, 2);
        assert!(matches!(parse("call").unwrap().placement.cores, Cores::One(_)));
        let few = parse("--count 7 --quick --repetitions=2").unwrap();
        assert_eq!((few.extent.count, few.extent.repetitions, few.extent.warm_up), (7, 2, QUICK.warm_up));
        assert_eq!(few.asked, Asked { count: Some(7), repetitions: Some(2) });
        assert_eq!(parse("--unpinned").unwrap().placement.cores, Cores::Any);
    }

    #[test]
    fn nonsense_is_refused_with_a_hint() {
        for (line, hint) in [
            ("--core", "needs a value"),
            ("--core x", "a number from 0"),
            ("--cores 1", "as in 0,1"),
            ("--fifo 0", "1 to 99"),
            ("--transport carrier-pigeon", "tcp, unix or shm"),
            ("--quick=yes", "takes no value"),
            ("--nothing", "no option `--nothing`"),
            ("--op what", "longsN"),
            ("--count 10000000 --repetitions 2", "at most"),
        ] {
            let refused = parse(line).unwrap_err().to_string();
            assert!(refused.contains(hint), "{line}: {refused}");
        }
    }
}
