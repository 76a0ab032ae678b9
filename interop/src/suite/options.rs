//! The command lines of Corelane's two programs, compatible with those of the other ORBs' programs.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use corelane::{CharSet, Dispatch, NestedWait, Orb, OrbBuilder, PoolConfig, Version};

/// Characters of narrow strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Characters {
    /// ASCII, whose octets are the same in ISO 8859-1 and UTF-8.
    Ascii,
    /// ISO 8859-1, with ISO 8859-1 as the native code set of the programs.
    Latin1,
    /// ISO 8859-1 in strings, and ASCII in single characters.
    Latin1Strings,
    /// All of Unicode, with UTF-8 as the native code set of the programs.
    Unicode,
}

impl Characters {
    /// Returns the command-line name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Characters::Ascii => "ascii",
            Characters::Latin1 => "latin1",
            Characters::Latin1Strings => "latin1-strings",
            Characters::Unicode => "unicode",
        }
    }
}

/// The options of both command lines that configure the program's ORB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrbOptions {
    /// `--listen ADDRESS`, repeatable. Default: a free port of the loopback interface.
    pub listen: Vec<String>,
    /// `--giop 1.N`: the highest version that the program uses and publishes.
    pub version: Version,
    /// `--native latin1|utf8`: the native code set.
    pub native_char_set: CharSet,
    /// `--fragment OCTETS`: larger messages are sent in fragments of this size.
    pub fragment_size: Option<usize>,
    /// `--dispatch reactive|thread-per-connection|leader-followers|half-sync`.
    pub dispatch: String,
    /// `--pool N`: the number of threads of the pool, or the maximum number of connections that
    /// have a separate thread.
    pub threads: usize,
    /// `--nested DEPTH`: maximum number of nested upcalls on a thread whose servant waits for a
    /// reply, where 0 permits none. Default: the choice of the dispatch.
    pub max_nested_upcalls: Option<u8>,
}

const LIFE: Duration = Duration::from_secs(240);

impl Default for OrbOptions {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            version: Version::GIOP_1_2,
            native_char_set: CharSet::Utf8,
            fragment_size: None,
            dispatch: "leader-followers".into(),
            // Eight callers, each with one upcall and four nested upcalls.
            threads: 40,
            max_nested_upcalls: None,
        }
    }
}

impl OrbOptions {
    fn take(&mut self, word: &str, words: &mut Words) -> Result<bool, String> {
        match word {
            "--listen" => self.listen.push(words.value(word)?),
            "--giop" => {
                self.version = match words.value(word)?.as_str() {
                    "1.0" => Version::GIOP_1_0,
                    "1.1" => Version::GIOP_1_1,
                    "1.2" => Version::GIOP_1_2,
                    other => return Err(format!("--giop {other}: 1.0, 1.1 or 1.2 is expected")),
                }
            }
            "--native" => {
                self.native_char_set = match words.value(word)?.as_str() {
                    "latin1" => CharSet::Latin1,
                    "utf8" => CharSet::Utf8,
                    other => return Err(format!("--native {other}: latin1 or utf8 is expected")),
                }
            }
            "--fragment" => self.fragment_size = Some(words.number(word)?),
            "--dispatch" => self.dispatch = words.value(word)?,
            "--pool" => self.threads = words.number(word)?,
            "--nested" => self.max_nested_upcalls = Some(words.number(word)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Creates the ORB.
    ///
    /// # Errors
    ///
    /// The dispatch is unknown, or listening at an address failed.
    pub fn orb(&self) -> Result<Orb, String> {
        self.builder()?.build().map_err(|error| error.to_string())
    }

    fn builder(&self) -> Result<OrbBuilder, String> {
        let dispatch = match self.dispatch.as_str() {
            "reactive" => Dispatch::Reactive,
            "thread-per-connection" => Dispatch::ThreadPerConnection { max_threads: self.threads },
            "leader-followers" => Dispatch::LeaderFollowers { threads: self.threads },
            "half-sync" => Dispatch::HalfSyncHalfAsync { threads: self.threads, max_queued: 1000 },
            other => return Err(format!("--dispatch {other} is unknown")),
        };
        let nested_wait = self.max_nested_upcalls.map(|depth| match depth {
            0 => NestedWait::Block,
            depth => NestedWait::Serve { max_depth: depth },
        });
        let pool = PoolConfig::default().dispatch(dispatch).nested_wait(nested_wait);
        let mut builder = Orb::builder().pool(pool).giop_version(self.version).native_char_set(self.native_char_set);
        // Each nested call of a thread needs a connection, and calls take long on a busy machine.
        builder = builder.max_connections_per_server(64).call_timeout(LIFE);
        if let Some(octets) = self.fragment_size {
            builder = builder.max_fragment_size(octets);
        }
        if self.listen.is_empty() {
            return Ok(builder.listen("tcp:127.0.0.1:0"));
        }
        Ok(self.listen.iter().fold(builder, |builder, address| builder.listen(address)))
    }
}

/// The command line of `corelane-interop-server`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerOptions {
    /// `--ior FILE`: the file to which the server writes its reference.
    pub ior: String,
    /// `--life SECONDS`: time until the server ends. Default: 300.
    pub life_seconds: u64,
    /// `--until-eof`: true if the server ends when its standard input ends.
    pub until_eof: bool,
    /// `--task`: true if the references that clients get lead through admitted tasks to the
    /// server's object and to its object of type Bench.
    pub task: bool,
    /// Options for the server's ORB, such as its addresses.
    pub orb_options: OrbOptions,
}

impl ServerOptions {
    /// Parses the command line, without the program's name.
    ///
    /// # Errors
    ///
    /// The command line is invalid.
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut words = Words(words.collect::<Vec<_>>().into_iter());
        let mut options = Self { life_seconds: 300, ..Self::default() };
        while let Some(word) = words.0.next() {
            match word.as_str() {
                "--ior" => options.ior = words.value(&word)?,
                "--life" => options.life_seconds = words.number(&word)?,
                "--until-eof" => options.until_eof = true,
                "--task" => options.task = true,
                _ if options.orb_options.take(&word, &mut words)? => {}
                _ => return Err(format!("unknown argument {word}")),
            }
        }
        if options.ior.is_empty() { Err("--ior FILE is missing".into()) } else { Ok(options) }
    }
}

/// The command line of `corelane-interop-client`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientOptions {
    /// The server's reference, an `IOR:` or `corbaloc:` text. On the command line, it may be the
    /// name of a file with such a text.
    pub reference: String,
    /// True if the client sends wide characters.
    pub wide_characters: bool,
    /// Characters of narrow strings.
    pub characters: Characters,
    /// True if unions have no discriminators without a label.
    pub only_labelled_discriminators: bool,
    /// Names of skipped checks.
    pub skipped: HashSet<String>,
    /// Number of rounds with different values for each operation.
    pub rounds: u64,
    /// Maximum size of large messages in octets; 0 leaves them out.
    pub max_message_octets: usize,
    /// Number of concurrent callers.
    pub threads: u32,
    /// Duration in milliseconds of the slow operation that concurrent callers call.
    pub slow_call_ms: u32,
    /// Number of callers that must be inside the server at the same time; 0 leaves the check out.
    pub min_callers_at_once: u32,
    /// True if the client shuts the server down after its last check.
    pub shutdown: bool,
    /// Options for the client's ORB, such as its GIOP version.
    pub orb_options: OrbOptions,
}

impl ClientOptions {
    /// Parses the command line, without the program's name.
    ///
    /// # Errors
    ///
    /// The command line is invalid, or the file with the reference cannot be read.
    pub fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut words = Words(words.collect::<Vec<_>>().into_iter());
        let mut meet = None;
        let mut options = Self {
            reference: String::new(),
            wide_characters: true,
            characters: Characters::Ascii,
            only_labelled_discriminators: false,
            skipped: HashSet::new(),
            rounds: 6,
            max_message_octets: 1_000_000,
            threads: 8,
            slow_call_ms: 50,
            min_callers_at_once: 0,
            shutdown: false,
            orb_options: OrbOptions::default(),
        };
        while let Some(word) = words.0.next() {
            match word.as_str() {
                "--no-wide" => options.wide_characters = false,
                "--chars" => {
                    let name = words.value(&word)?;
                    let all = [Characters::Ascii, Characters::Latin1, Characters::Latin1Strings, Characters::Unicode];
                    let found = all.into_iter().find(|characters| characters.name() == name);
                    options.characters = found.ok_or_else(|| format!("--chars {name} is unknown"))?;
                }
                "--plain-unions" => options.only_labelled_discriminators = true,
                "--skip" => drop(options.skipped.insert(words.value(&word)?)),
                "--rounds" => options.rounds = words.number(&word)?,
                "--big" => options.max_message_octets = words.number(&word)?,
                "--threads" => options.threads = words.number(&word)?,
                "--slow" => options.slow_call_ms = words.number(&word)?,
                "--meet" => meet = Some(words.number(&word)?),
                "--shutdown" => options.shutdown = true,
                _ if options.orb_options.take(&word, &mut words)? => {}
                _ if options.reference.is_empty() && !word.starts_with('-') => options.reference = reference(&word)?,
                _ => return Err(format!("unknown argument {word}")),
            }
        }
        options.min_callers_at_once = meet.unwrap_or(options.threads);
        if options.reference.is_empty() { Err("a reference is missing".into()) } else { Ok(options) }
    }
}

fn reference(word: &str) -> Result<String, String> {
    if word.starts_with("IOR:") || word.starts_with("corbaloc:") {
        return Ok(word.to_owned());
    }
    fs::read_to_string(word).map(|text| text.trim().to_owned()).map_err(|error| format!("{word}: {error}"))
}

struct Words(std::vec::IntoIter<String>);

impl Words {
    fn value(&mut self, option: &str) -> Result<String, String> {
        self.0.next().ok_or_else(|| format!("{option} needs a value"))
    }

    fn number<N: std::str::FromStr>(&mut self, option: &str) -> Result<N, String> {
        let value = self.value(option)?;
        value.parse().map_err(|_| format!("{option} {value}: a number is expected"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> impl Iterator<Item = String> {
        line.split(' ').map(str::to_owned).collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn command_line_of_the_server_is_parsed() {
        let line = "--ior f --until-eof --giop 1.1 --native latin1 --fragment 1024 --dispatch half-sync --pool 9";
        let options = ServerOptions::parse(words(line)).unwrap();
        assert_eq!((options.ior.as_str(), options.life_seconds, options.until_eof), ("f", 300, true));
        let setup = options.orb_options;
        assert_eq!((setup.version, setup.native_char_set), (Version::GIOP_1_1, CharSet::Latin1));
        assert_eq!((setup.fragment_size, setup.dispatch.as_str(), setup.threads), (Some(1024), "half-sync", 9));
        assert!(ServerOptions::parse(words("--life 3")).unwrap_err().contains("--ior"));
    }

    #[test]
    fn command_line_of_the_client_is_parsed() {
        let options =
            ClientOptions::parse(words("corbaloc::h:1/K --chars latin1 --no-wide --threads 3 --skip a")).unwrap();
        assert_eq!(
            (options.reference.as_str(), options.wide_characters, options.min_callers_at_once),
            ("corbaloc::h:1/K", false, 3)
        );
        assert!(options.characters == Characters::Latin1 && options.skipped.contains("a"));
        assert!(ClientOptions::parse(words("corbaloc::h:1/K --what")).unwrap_err().contains("--what"));
    }
}
