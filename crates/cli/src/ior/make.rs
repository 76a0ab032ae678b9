//! The command `corelane ior make`, which makes a reference from its parts.

use std::ffi::OsString;
use std::io::Write;

use clap::{ArgAction, ArgMatches, Command};
use corelane_wire::cdr::CdrError;
use corelane_wire::codeset::{CharSet, CodeSetInfo};
use corelane_wire::giop::Version;
use corelane_wire::ior::{
    Corbaloc, CorbalocAddress, Ior, ProfileAddress, TaggedComponent, TaggedProfile, TaoEndpoint, orb_type_id,
    unescape_key,
};
use corelane_wire::rt::{PriorityModelValue, encode_priority_bands, policy_type};

use crate::arguments::{self, ArgumentRefusal, flag, option};
use crate::json::parse_hexadecimal;
use crate::text::excerpt;
use crate::{DONE, NOT_DONE};

pub(super) const USAGE: &str = "\
usage: corelane ior make [OPTION]... --address ADDRESS... --key TEXT

Makes a reference and prints it as IOR:, or as corbaloc: with --corbaloc. Each address makes a profile; all have the same key
and components. ADDRESS is tcp:HOST:PORT, HOST:PORT, unix:PATH in Corelane's form (with --host), or uiop:PATH in TAO's form.

  --address ADDRESS     an address; may be given several times
  --key TEXT            the object key, with %hh for octets that are not letters, digits or unreserved signs
  --key-hex HEX         the object key in hexadecimal digits
  --type-id ID          the repository id of the interface, such as IDL:Shop/Order:1.0
  --version V           the version of the profiles: 1.0, 1.1 or 1.2 (1.2)
  --host NAME           the machine of unix: addresses
  --alternate HOST:PORT another TCP address of the same object; may be given several times
  --lane PRIORITY@HOST:PORT
                        the address of the lane of this priority; may be given several times; the first is the profile's own
                        address, instead of --address
  --priority-model MODEL
                        client, server:PRIORITY or client:PRIORITY, which objects of real-time POAs have
  --band LOW:HIGH       a priority band of the object; may be given several times
  --code-sets NAME      the server's native code set: utf-8 or iso-8859-1; it converts the other
  --orb-type TYPE       the server's ORB: corelane, tao, omniorb, jacorb or a number
  --component TAG=HEX   any other component, by its number and its octets; may be given several times
  --profile TAG=HEX     any other profile, by its number and its octets; may be given several times
  --corbaloc            print corbaloc:, which has TCP addresses and a key only

Exit status: 0 made, 1 the parts do not make a reference, 2 wrong usage.
";

pub(super) fn command() -> Command {
    let many = [
        ("address", "ADDRESS"),
        ("alternate", "HOST:PORT"),
        ("lane", "PRIORITY@HOST:PORT"),
        ("band", "LOW:HIGH"),
        ("component", "TAG=HEX"),
        ("profile", "TAG=HEX"),
    ];
    let one = [
        ("key", "TEXT"),
        ("key-hex", "HEX"),
        ("type-id", "ID"),
        ("version", "V"),
        ("host", "NAME"),
        ("priority-model", "MODEL"),
        ("code-sets", "NAME"),
        ("orb-type", "TYPE"),
    ];
    let command = arguments::command("make", USAGE)
        .args(many.map(|(name, value)| option(name, value).action(ArgAction::Append)))
        .args(one.map(|(name, value)| option(name, value)))
        .arg(flag("corbaloc"));
    arguments::with_descriptions(command, USAGE)
}

pub(super) fn run(words: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let parts = match arguments::parse(command(), words).map_err(ArgumentRefusal::reason) {
        Ok(parsed) => ReferenceParts::of(&parsed).map_err(Some),
        Err(reason) => Err(reason),
    };
    let parts = match parts {
        Ok(parts) => parts,
        Err(reason) => return arguments::print_refusal(reason, USAGE, out),
    };
    let (status, line) = match parts.make() {
        Ok(text) => (DONE, text),
        Err(error) => (NOT_DONE, format!("error: the parts make no reference: {error}")),
    };
    let _ = writeln!(out, "{line}");
    status
}

#[derive(Debug, PartialEq, Eq)]
enum MadeAddress {
    Tcp(String, u16),
    Unix(String),
    Uiop(String),
}

#[derive(Debug)]
struct ReferenceParts {
    type_id: String,
    version: Version,
    addresses: Vec<MadeAddress>,
    host: String,
    key: Vec<u8>,
    components: Vec<TaggedComponent>,
    profiles: Vec<TaggedProfile>,
    is_corbaloc: bool,
}

impl ReferenceParts {
    fn of(parsed: &ArgMatches) -> Result<ReferenceParts, String> {
        let text = |id: &str| arguments::text(parsed, id);
        let lanes = arguments::texts(parsed, "lane").iter().map(|lane| lane_of(lane)).collect::<Result<Vec<_>, _>>()?;
        let addresses = arguments::texts(parsed, "address").iter().map(|text| place(text)).collect::<Result<_, _>>()?;
        let mut parts = ReferenceParts {
            type_id: text("type-id").unwrap_or_default(),
            version: version(text("version").as_deref().unwrap_or("1.2"))?,
            addresses,
            host: text("host").unwrap_or_default(),
            key: key(text("key"), text("key-hex"))?,
            components: components(parsed, &lanes)?,
            profiles: Vec::new(),
            is_corbaloc: parsed.get_flag("corbaloc"),
        };
        for text in arguments::texts(parsed, "profile") {
            let (tag, data) = tagged("--profile", &text)?;
            parts.profiles.push(TaggedProfile { tag, data });
        }
        if let Some(first) = lanes.first() {
            if !parts.addresses.is_empty() {
                return Err("`--lane` and `--address` exclude each other".to_owned());
            }
            parts.addresses.push(MadeAddress::Tcp(first.address.clone(), first.port.unwrap_or_default()));
        }
        if parts.addresses.is_empty() && parts.profiles.is_empty() {
            return Err("no address is given".to_owned());
        }
        if parts.host.is_empty() && parts.addresses.iter().any(|place| matches!(place, MadeAddress::Unix(_))) {
            return Err("`unix:` needs the machine's name, `--host`".to_owned());
        }
        if parts.version == Version::GIOP_1_0 && !parts.components.is_empty() {
            return Err("profiles of version 1.0 have no components".to_owned());
        }
        if parts.is_corbaloc {
            let is_tcp = parts.addresses.iter().all(|place| matches!(place, MadeAddress::Tcp(..)));
            if !is_tcp || !parts.profiles.is_empty() {
                return Err("a corbaloc has TCP addresses only".to_owned());
            }
            if !parts.type_id.is_empty() || !parts.components.is_empty() {
                return Err("a corbaloc has no type id and no components".to_owned());
            }
        }
        if !parts.addresses.is_empty() && text("key").or_else(|| text("key-hex")).is_none() {
            return Err("no object key is given: `--key TEXT`, or `--key-hex HEX`".to_owned());
        }
        Ok(parts)
    }

    fn make(self) -> Result<String, CdrError> {
        if self.is_corbaloc {
            let address = |place| match place {
                MadeAddress::Tcp(host, port) => Some(CorbalocAddress::Iiop { version: self.version, host, port }),
                MadeAddress::Unix(_) | MadeAddress::Uiop(_) => None,
            };
            let addresses = self.addresses.into_iter().filter_map(address).collect();
            return Ok(Corbaloc { addresses, key: self.key }.to_string());
        }
        let profile = |place: &MadeAddress| {
            let address = match place {
                MadeAddress::Tcp(host, port) => ProfileAddress::Inet { host, port: *port },
                MadeAddress::Unix(path) => ProfileAddress::Unix { host: &self.host, path },
                MadeAddress::Uiop(path) => ProfileAddress::Uiop { path },
            };
            TaggedProfile::encode(self.version, address, &self.key, &self.components)
        };
        let mut profiles = self.addresses.iter().map(profile).collect::<Result<Vec<_>, _>>()?;
        profiles.extend(self.profiles);
        Ior { type_id: self.type_id, profiles }.to_text()
    }
}

fn components(parsed: &ArgMatches, lanes: &[TaoEndpoint]) -> Result<Vec<TaggedComponent>, String> {
    let text = |id: &str| arguments::text(parsed, id);
    let mut found = Vec::new();
    if let Some(name) = text("orb-type") {
        found.push(TaggedComponent::orb_type(orb_type(&name)?));
    }
    if let Some(name) = text("code-sets") {
        let native = match name.to_ascii_lowercase().as_str() {
            "utf-8" => CharSet::Utf8,
            "iso-8859-1" => CharSet::Latin1,
            _ => return Err(format!("there is no code set `{}`: utf-8 or iso-8859-1", excerpt(&name))),
        };
        found.push(TaggedComponent::code_sets(&CodeSetInfo::for_native(native)));
    }
    for text in arguments::texts(parsed, "alternate") {
        let (host, port) = host_and_port(&text)?;
        found.push(TaggedComponent::alternate_address(&host, port));
    }
    let mut policies = Vec::new();
    let refused = |error: CdrError| error.to_string();
    if let Some(model) = text("priority-model") {
        policies.push((policy_type::PRIORITY_MODEL, priority_model(&model)?.encode().map_err(refused)?));
    }
    let bands = arguments::texts(parsed, "band").iter().map(|text| band(text)).collect::<Result<Vec<_>, _>>()?;
    if !bands.is_empty() {
        policies.push((policy_type::PRIORITY_BANDED_CONNECTION, encode_priority_bands(&bands).map_err(refused)?));
    }
    if !policies.is_empty() {
        found.push(TaggedComponent::policies(&policies));
    }
    if !lanes.is_empty() {
        found.push(TaggedComponent::tao_endpoints(lanes));
    }
    let mut found = found.into_iter().collect::<Result<Vec<_>, _>>().map_err(refused)?;
    for text in arguments::texts(parsed, "component") {
        let (tag, data) = tagged("--component", &text)?;
        found.push(TaggedComponent { tag, data });
    }
    Ok(found)
}

fn key(text: Option<String>, hex: Option<String>) -> Result<Vec<u8>, String> {
    match (text, hex) {
        (Some(_), Some(_)) => Err("`--key` and `--key-hex` exclude each other".to_owned()),
        (None, None) => Ok(Vec::new()),
        (Some(text), None) => unescape_key(&text).map_err(|error| format!("`--key {}`: {error}", excerpt(&text))),
        (None, Some(hex)) => digits("--key-hex", &hex),
    }
}

fn digits(option: &str, text: &str) -> Result<Vec<u8>, String> {
    let octets = parse_hexadecimal(text).map(|octets| octets.to_vec());
    octets.ok_or_else(|| format!("`{option}` needs pairs of hexadecimal digits, not `{}`", excerpt(text)))
}

fn tagged(option: &str, text: &str) -> Result<(u32, Vec<u8>), String> {
    let (tag, data) = text.split_once('=').ok_or_else(|| format!("`{option}` needs TAG=HEX"))?;
    Ok((number(option, tag)?, digits(option, data)?))
}

fn number(option: &str, text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.ok_or_else(|| format!("`{option}` needs a number, not `{}`", excerpt(text)))
}

fn orb_type(name: &str) -> Result<u32, String> {
    match name.to_ascii_lowercase().as_str() {
        "corelane" => Ok(orb_type_id::CORELANE),
        "tao" => Ok(orb_type_id::TAO),
        "omniorb" => Ok(orb_type_id::OMNIORB),
        "jacorb" => Ok(orb_type_id::JACORB),
        _ => number("--orb-type", name),
    }
}

fn version(text: &str) -> Result<Version, String> {
    match text {
        "1.0" => Ok(Version::GIOP_1_0),
        "1.1" => Ok(Version::GIOP_1_1),
        "1.2" => Ok(Version::GIOP_1_2),
        _ => Err(format!("there is no version `{}`: 1.0, 1.1 or 1.2", excerpt(text))),
    }
}

fn place(text: &str) -> Result<MadeAddress, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(MadeAddress::Unix(path.to_owned()));
    }
    if let Some(path) = text.strip_prefix("uiop:") {
        return Ok(MadeAddress::Uiop(path.to_owned()));
    }
    let (host, port) = host_and_port(text.strip_prefix("tcp:").unwrap_or(text))?;
    Ok(MadeAddress::Tcp(host, port))
}

/// Parses `HOST:PORT`. An IPv6 address must be in brackets.
fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let is_host = !host.is_empty() && (bare.is_some() || !host.contains(':'));
        Some((is_host.then(|| host.to_owned())?, port.parse().ok()?))
    });
    parts.ok_or_else(|| format!("`{}` is not an address: HOST:PORT or [IPV6]:PORT", excerpt(text)))
}

fn lane_of(text: &str) -> Result<TaoEndpoint, String> {
    let parts = text.split_once('@').and_then(|(priority, place)| Some((priority.parse().ok()?, place)));
    let (priority, place) = parts.ok_or_else(|| format!("`--lane {}`: expected PRIORITY@HOST:PORT", excerpt(text)))?;
    let (address, port) = host_and_port(place)?;
    Ok(TaoEndpoint { address, port: Some(port), priority })
}

fn priority_model(text: &str) -> Result<PriorityModelValue, String> {
    let (model, priority) = text.split_once(':').unwrap_or((text, "0"));
    let model = match model {
        "client" => Some(0),
        "server" if text.contains(':') => Some(1),
        _ => None,
    };
    let value = model.zip(priority.parse().ok());
    let value = value.map(|(model, server_priority)| PriorityModelValue { model, server_priority });
    value.ok_or_else(|| format!("`{}` is no priority model: client, client:PRIORITY or server:PRIORITY", excerpt(text)))
}

fn band(text: &str) -> Result<(i16, i16), String> {
    let band = text.split_once(':').and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
    band.filter(|(low, high)| low <= high).ok_or_else(|| format!("`--band {}`: expected LOW:HIGH", excerpt(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WRONG_USAGE;
    use corelane_wire::ior::{ObjectUrl, component_tag};
    use corelane_wire::{Limits, rt};

    fn made(line: &str) -> (u8, String) {
        let mut out = Vec::new();
        let status = run(line.split(' ').map(OsString::from), &mut out);
        (status, String::from_utf8(out).unwrap())
    }

    #[test]
    fn reference_is_made_from_its_parts() {
        let (status, text) = made(
            "--address h:1 --address [::1]:2 --key a%20b --type-id IDL:X:1.0 --version 1.1 --alternate i:3 --orb-type \
             tao --code-sets UTF-8 --priority-model server:7 --band 0:9 --band 10:20 --component 0x7777=ab --profile 9=00",
        );
        assert_eq!(status, DONE, "{text}");
        let Ok(ObjectUrl::Ior(ior)) = ObjectUrl::parse(&text, &Limits::DEFAULT) else { panic!("{text}") };
        assert_eq!((ior.type_id.as_str(), ior.profiles.len()), ("IDL:X:1.0", 3));
        assert_eq!(ior.profiles[2], TaggedProfile { tag: 9, data: vec![0] });
        let hosts = [("h", 1), ("::1", 2)];
        for (profile, (host, port)) in ior.known_profiles().zip(hosts) {
            assert_eq!((profile.version, profile.object_key), (Version::GIOP_1_1, &b"a b"[..]));
            assert_eq!(profile.address, ProfileAddress::Inet { host, port });
            assert_eq!(profile.orb_type(), Some(orb_type_id::TAO));
            assert_eq!(profile.endpoints().len(), 2);
            let policies = corelane_wire::ior::parse_policies(
                profile.components.find(component_tag::POLICIES).unwrap(),
                &Limits::DEFAULT,
            )
            .unwrap();
            let model = PriorityModelValue::parse(policies.find(policy_type::PRIORITY_MODEL).unwrap()).unwrap();
            assert_eq!((model.model, model.server_priority), (1, 7));
            let bands = policies.find(policy_type::PRIORITY_BANDED_CONNECTION).unwrap();
            assert_eq!(rt::parse_priority_bands(bands).unwrap(), [(0, 9), (10, 20)]);
            assert_eq!(profile.components.find(0x7777), Some(&[0xab][..]));
        }
        let (_, text) = made("--lane 5@h:1 --lane 9@i:2 --key k");
        let Ok(ObjectUrl::Ior(ior)) = ObjectUrl::parse(&text, &Limits::DEFAULT) else { panic!("{text}") };
        let profile = ior.known_profiles().next().unwrap();
        assert_eq!(profile.address, ProfileAddress::Inet { host: "h", port: 1 });
        let lanes = profile.components.find(component_tag::TAO_ENDPOINTS).unwrap();
        let lanes = TaoEndpoint::parse_all(profile.tag, lanes, &Limits::DEFAULT).unwrap();
        assert_eq!(lanes.iter().map(|lane| lane.priority).collect::<Vec<_>>(), [5, 9]);
        let corbaloc = made("--address h:1 --address tcp:i:2 --key-hex 6120 --corbaloc");
        assert_eq!(corbaloc, (DONE, "corbaloc:iiop:1.2@h:1,iiop:1.2@i:2/a%20\n".to_owned()));
    }

    #[test]
    fn invalid_parts_are_refused() {
        for (line, reason) in [
            ("--key k", "no address is given"),
            ("--address h", "`h` is not an address"),
            ("--address ::1:2", "`::1:2` is not an address"),
            ("--address h:99999", "`h:99999` is not an address"),
            ("--address unix:/x", "`unix:` needs"),
            ("--address h:1 --lane 1@h:1", "exclude each other"),
            ("--lane x@h:1", "expected PRIORITY@HOST:PORT"),
            ("--address h:1 --key a --key-hex 61", "exclude each other"),
            ("--address h:1 --key %", "`--key %`"),
            ("--address h:1 --key-hex 6", "pairs of hexadecimal digits"),
            ("--address h:1 --version 2.0", "there is no version `2.0`"),
            ("--address h:1 --version 1.0 --alternate i:2", "have no components"),
            ("--address h:1 --code-sets x", "there is no code set `x`"),
            ("--address h:1 --orb-type x", "needs a number"),
            ("--address h:1 --priority-model server", "is no priority model"),
            ("--address h:1 --band 2:1", "expected LOW:HIGH"),
            ("--address h:1 --component 5", "needs TAG=HEX"),
            ("--address h:1 --corbaloc --type-id x", "no type id"),
            ("--address uiop:/x --corbaloc", "TCP addresses only"),
            ("--address h:1", "no object key is given"),
            ("--lane 1@h:1", "no object key is given"),
            ("more", "there is no argument `more`"),
        ] {
            let (status, text) = made(line);
            assert!(status == WRONG_USAGE && text.starts_with("error: ") && text.contains(reason), "{line}: {text}");
        }
        let (status, text) = made("--address h\0:1 --key k");
        assert!(status == NOT_DONE && text.starts_with("error: the parts make no reference"), "{text}");
    }
}
