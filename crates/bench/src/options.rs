//! The command-line options of `corelane bench`.

use std::ffi::OsString;
use std::path::PathBuf;

use corelane_sys::thread::Scheduling;

use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::RunLength;
use crate::operation::MeasuredOperation;
use crate::peer::{BuiltPeer, PeerKind};
use crate::placement::{CoreChoice, Placement};

#[derive(Clone, Debug)]
pub(crate) struct BenchOptions {
    pub(crate) names: Vec<String>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) name: Option<String>,
    pub(crate) remote_shell: PathBuf,
    pub(crate) page: PathBuf,
    pub(crate) picture: Option<PathBuf>,
    pub(crate) run_length: RunLength,
    pub(crate) depth: Depth,
    pub(crate) requested: RequestedRunLength,
    pub(crate) placement: Placement,
    pub(crate) threads: usize,
    /// Operations to call; empty for the defaults of each benchmark.
    pub(crate) operations: Vec<MeasuredOperation>,
    /// Transports to measure; empty for the defaults of each benchmark.
    pub(crate) transports: Vec<BaselineTransport>,
    pub(crate) peers_folder: PathBuf,
    /// Path of the program `hello-server`; `None` means the folder of this program.
    pub(crate) hello_server: Option<PathBuf>,
    /// Path of the smallest `hello-server`; `None` means `../minimal/hello-server`, relative to the
    /// folder of this program.
    pub(crate) minimal_server: Option<PathBuf>,
    pub(crate) without_peers: bool,
    pub(crate) may_switch_preemption: bool,
    pub(crate) strict: bool,
    pub(crate) help: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedRunLength {
    pub(crate) count: Option<usize>,
    pub(crate) repetitions: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Quick,
    Usual,
    Full,
}

const QUICK: RunLength = RunLength { warm_up: 200, count: 2000, repetitions: 3 };
const DEFAULT: RunLength = RunLength { warm_up: 1000, count: 10_000, repetitions: 5 };
const FULL: RunLength = RunLength { warm_up: 2000, count: 50_000, repetitions: 10 };

/// Maximum number of calls of a variant in all repetitions, which limits the memory for call times.
const MAX_CALLS: usize = 10_000_000;

impl BenchOptions {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Failure> {
        let placement = Placement::one_core()
            .map_err(|error| Failure::new(format!("the kernel does not report the cores: {error}")))?;
        let mut options = BenchOptions {
            names: Vec::new(),
            json: None,
            name: None,
            remote_shell: PathBuf::from("ssh"),
            page: PathBuf::from("report.html"),
            picture: None,
            run_length: DEFAULT,
            depth: Depth::Usual,
            requested: RequestedRunLength::default(),
            placement,
            threads: 4,
            operations: Vec::new(),
            transports: Vec::new(),
            peers_folder: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../interop/peers")),
            hello_server: None,
            minimal_server: None,
            without_peers: false,
            may_switch_preemption: false,
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
            let mut value = OptionValue { name: &name, joined, rest: &mut arguments };
            match name.as_str() {
                "--json" => options.json = Some(value.text()?.into()),
                "--out" => options.page = value.text()?.into(),
                "--picture" => options.picture = Some(value.text()?.into()),
                "--name" => options.name = Some(value.text()?.to_string_lossy().into_owned()),
                "--via" => options.remote_shell = value.text()?.into(),
                "--minimal" => options.minimal_server = Some(value.text()?.into()),
                "--hello" => options.hello_server = Some(value.text()?.into()),
                "--peers" => options.peers_folder = value.text()?.into(),
                "--quick" => (options.run_length, options.depth) = (QUICK, Depth::Quick),
                "--full" => (options.run_length, options.depth) = (FULL, Depth::Full),
                "--count" => options.requested.count = Some(value.number(1, MAX_CALLS)?),
                "--warm-up" => options.run_length.warm_up = value.number(0, MAX_CALLS)?,
                "--repetitions" => options.requested.repetitions = Some(value.number(1, 1000)?),
                "--threads" => options.threads = value.number(1, 256)?,
                "--core" => options.placement.cores = CoreChoice::Shared(value.number(0, 1023)?),
                "--cores" => options.placement.cores = value.two_cores()?,
                "--unpinned" => options.placement.cores = CoreChoice::Any,
                "--fifo" => {
                    let priority = value.number(1, 99)?;
                    options.placement.scheduling = Some(Scheduling::Fifo(u8::try_from(priority).unwrap_or(1)));
                }
                "--op" => options.operations.push(MeasuredOperation::from_name(&value.text()?.to_string_lossy())?),
                "--transport" => options.transports.push(value.transport()?),
                "--without-peers" => options.without_peers = true,
                "--preemption" => options.may_switch_preemption = true,
                "--strict" => options.strict = true,
                "-h" | "--help" => options.help = true,
                _ if name.starts_with('-') => return Err(Failure::new(format!("there is no option `{name}`"))),
                _ => options.names.push(text),
            }
            value.unused()?;
        }
        options.run_length.count = options.requested.count.unwrap_or(options.run_length.count);
        options.run_length.repetitions = options.requested.repetitions.unwrap_or(options.run_length.repetitions);
        if options.run_length.count * options.run_length.repetitions > MAX_CALLS {
            return Err(Failure::new(format!("--count times --repetitions is at most {MAX_CALLS}")));
        }
        Ok(options)
    }

    pub(crate) fn peer(&self, kind: PeerKind) -> Result<BuiltPeer, Failure> {
        if self.without_peers {
            return Err(Failure::new("left out by --without-peers"));
        }
        BuiltPeer::build(kind, &self.peers_folder)
    }

    #[must_use]
    pub(crate) fn transports(&self) -> Vec<BaselineTransport> {
        if self.transports.is_empty() { vec![BaselineTransport::Tcp] } else { self.transports.clone() }
    }

    #[must_use]
    pub(crate) fn operations_or(&self, usual: &[MeasuredOperation]) -> Vec<MeasuredOperation> {
        if self.operations.is_empty() { usual.to_vec() } else { self.operations.clone() }
    }
}

struct OptionValue<'a, I> {
    name: &'a str,
    joined: Option<OsString>,
    rest: &'a mut I,
}

impl<I: Iterator<Item = OsString>> OptionValue<'_, I> {
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

    fn transport(&mut self) -> Result<BaselineTransport, Failure> {
        let text = self.text()?.to_string_lossy().into_owned();
        let known = BaselineTransport::from_name(&text);
        known.ok_or_else(|| Failure::new(format!("`--transport` takes tcp, unix or shm, not `{text}`")))
    }

    fn two_cores(&mut self) -> Result<CoreChoice, Failure> {
        let text = self.text()?.to_string_lossy().into_owned();
        let pair = text.split_once(',').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let known = |core: usize| core < corelane_sys::thread::CpuSet::CAPACITY;
        match pair {
            Some((client, server)) if known(client) && known(server) => Ok(CoreChoice::Separate(client, server)),
            _ => {
                Err(Failure::new(format!("`--cores` takes two cores, client's and server's, as in 0,1, not `{text}`")))
            }
        }
    }

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

    fn parse(line: &str) -> Result<BenchOptions, Failure> {
        BenchOptions::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_and_names_may_alternate() {
        let options =
            parse("call --quick --json=/tmp/x --op octet --op longs4 demux --cores 0,1 --fifo 5 --threads=2").unwrap();
        assert_eq!(options.names, ["call", "demux"]);
        assert_eq!(options.json, Some(PathBuf::from("/tmp/x")));
        assert_eq!(options.run_length, QUICK);
        assert_eq!(options.operations, [MeasuredOperation::Octet, MeasuredOperation::Longs(4)]);
        let placement = Placement { cores: CoreChoice::Separate(0, 1), scheduling: Some(Scheduling::Fifo(5)) };
        assert_eq!(options.placement, placement);
        assert_eq!(options.threads, 2);
        assert!(matches!(parse("call").unwrap().placement.cores, CoreChoice::Shared(_)));
        let few = parse("--count 7 --quick --repetitions=2").unwrap();
        assert_eq!((few.run_length.count, few.run_length.repetitions, few.run_length.warm_up), (7, 2, QUICK.warm_up));
        assert_eq!(few.requested, RequestedRunLength { count: Some(7), repetitions: Some(2) });
        assert_eq!(parse("--unpinned").unwrap().placement.cores, CoreChoice::Any);
    }

    #[test]
    fn invalid_arguments_are_refused_with_a_hint() {
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
