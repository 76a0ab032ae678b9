//! `corelane ior`: shows the contents of an object reference.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Read, Write};

use corelane_wire::cdr::TaggedList;
use corelane_wire::codeset::{CodeSetComponent, CodeSetInfo, id};
use corelane_wire::ior::{
    Address, Corbaloc, Corbaname, Endpoint, Ior, ObjectUrl, Profile, TaggedProfile, TaoEndpoint, component_tag,
    escape_key, orb_type, orb_type_id, policies, profile_tag,
};
use corelane_wire::limits::Limits;

use crate::policies::describe as describe_policy;
use crate::text::{excerpt, printable};
use crate::{DONE, NOT_DONE, WRONG_USAGE};

/// Help text of the command.
pub(crate) const USAGE: &str = "\
usage: corelane ior TEXT...
       corelane ior -

Shows the content of a reference: type, profiles with their addresses, object key and components. TEXT is IOR: and hexadecimal
digits, corbaloc: or corbaname:. With - the references are read from the standard input, one a line. Nothing is called.

Exit status: 0 shown, 1 a reference is malformed, 2 wrong usage.
";

/// Maximum size in bytes of the standard input: enough for a few references of the largest accepted
/// size.
const MOST_INPUT: u64 = 16 << 20;

/// Maximum number of bytes that are shown of unknown content.
const MOST_SHOWN: usize = 256;

/// Runs the command with the arguments after `corelane ior`.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>, out: &mut dyn Write) -> u8 {
    let texts: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let texts = match texts.as_slice() {
        [] => return wrong_usage("no reference is given", out),
        [help] if help == "-h" || help == "--help" => {
            let _ = out.write_all(USAGE.as_bytes());
            return DONE;
        }
        [dash] if dash == "-" => match lines_of_input() {
            Ok(lines) => lines,
            Err(error) => {
                let _ = writeln!(out, "error: the standard input cannot be read: {error}");
                return NOT_DONE;
            }
        },
        _ => match texts.iter().find(|text| text.starts_with('-')) {
            Some(option) => return wrong_usage(&format!("there is no option `{}`", excerpt(option)), out),
            None => texts,
        },
    };
    let mut status = DONE;
    for text in &texts {
        let shown = match ObjectUrl::parse(text, &Limits::DEFAULT) {
            Ok(url) => describe(&url),
            Err(error) => {
                status = NOT_DONE;
                format!("error: `{}` is not a reference: {error}\n", excerpt(text))
            }
        };
        // Ignore errors: the reader may have closed the pipe.
        let _ = out.write_all(shown.as_bytes());
    }
    status
}

fn wrong_usage(reason: &str, out: &mut dyn Write) -> u8 {
    let _ = write!(out, "error: {reason}\n\n{USAGE}");
    WRONG_USAGE
}

fn lines_of_input() -> io::Result<Vec<String>> {
    let mut text = String::new();
    io::stdin().lock().take(MOST_INPUT).read_to_string(&mut text)?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

fn describe(url: &ObjectUrl) -> String {
    let mut text = String::new();
    match url {
        ObjectUrl::Ior(ior) => reference(&mut text, ior),
        ObjectUrl::Corbaloc(corbaloc) => location(&mut text, corbaloc),
        ObjectUrl::Corbaname(Corbaname { context, name }) => {
            let name = name.as_deref().map_or("(the context itself)".to_owned(), printable);
            let _ = writeln!(text, "name      {name}");
            location(&mut text, context);
        }
        _ => text.push_str("a reference of a form that this version does not show\n"),
    }
    text
}

fn location(text: &mut String, corbaloc: &Corbaloc) {
    if let Some(name) = corbaloc.initial_reference() {
        let _ = writeln!(text, "initial reference of the ORB: {}", escape_key(name));
        return;
    }
    match corbaloc.to_ior() {
        Ok(ior) => reference(text, &ior),
        Err(error) => {
            let _ = writeln!(text, "  cannot be a reference: {error}");
        }
    }
}

fn reference(text: &mut String, ior: &Ior) {
    if ior.is_nil() {
        text.push_str("nil\n");
        return;
    }
    let id = if ior.type_id.is_empty() {
        "(none: only the object can report its type)".to_owned()
    } else {
        printable(&ior.type_id)
    };
    let _ = writeln!(text, "type      {id}");
    for (index, profile) in ior.profiles.iter().enumerate() {
        let _ = writeln!(text, "profile {}  {}", index + 1, profile_name(profile.tag));
        profile_body(text, profile);
    }
}

fn profile_body(text: &mut String, tagged: &TaggedProfile) {
    let profile = match tagged.parse() {
        Ok(profile) => profile,
        Err(error) if known(tagged.tag) => {
            let _ = writeln!(text, "  malformed: {error}\n{}", octets(&tagged.data));
            return;
        }
        Err(_) => {
            let _ = writeln!(text, "  {} octets of unknown content\n{}", tagged.data.len(), octets(&tagged.data));
            return;
        }
    };
    let _ = writeln!(text, "  version   {}.{}", profile.version.major, profile.version.minor);
    let address = match profile.address {
        Address::Inet { host, port } => format!("{}:{port}", host_text(host)),
        Address::Unix { host, path } => format!("{} on {}", printable(path), printable(host)),
        Address::SharedMemory { host, path } => format!("{} on {}", printable(path), printable(host)),
        Address::Uiop { path } => printable(path),
    };
    let _ = writeln!(text, "  address   {address}");
    for endpoint in profile.endpoints() {
        let _ = writeln!(text, "  connect   {}", endpoint_text(&endpoint));
    }
    let key = profile.object_key;
    let _ = writeln!(text, "  key       {} octets, {}\n{}", key.len(), printable(&escape_key(key)), octets(key));
    for (tag, data) in profile.components {
        component(text, &profile, tag, data);
    }
}

fn component(text: &mut String, profile: &Profile<'_>, tag: u32, data: &[u8]) {
    let (name, content) = match tag {
        component_tag::ORB_TYPE => ("ORB type", orb_type(data).ok().map(orb_name)),
        component_tag::CODE_SETS => ("code sets", CodeSetInfo::parse(data).ok().map(|info| code_sets(&info))),
        component_tag::POLICIES => {
            let count = |all: &TaggedList<'_>| if all.is_empty() { "none" } else { "" }.to_owned();
            ("policies", policies(data, &Limits::DEFAULT).ok().map(|all| count(&all)))
        }
        component_tag::ALTERNATE_IIOP_ADDRESS => {
            let address = corelane_wire::ior::alternate_address(data).ok();
            ("alternate address", address.map(|(host, port)| format!("{}:{port}", host_text(host))))
        }
        component_tag::OMNIORB_UNIX_TRANSPORT => {
            let socket = corelane_wire::ior::unix_transport(data).ok();
            ("omniORB Unix socket", socket.map(|(host, path)| format!("{} on {}", printable(path), printable(host))))
        }
        component_tag::TAO_ENDPOINTS | component_tag::LANE_ENDPOINTS => {
            let all = TaoEndpoint::parse_all(profile.tag, data, &Limits::DEFAULT).ok();
            let name = if tag == component_tag::TAO_ENDPOINTS { "TAO endpoints" } else { "endpoints of lanes" };
            (name, all.map(|all| all.iter().map(tao_endpoint).collect::<Vec<_>>().join(", ")))
        }
        component_tag::OMNIORB_PERSISTENT_ID => ("omniORB persistent id", None),
        component_tag::SSL_SEC_TRANS => ("SSL", None),
        component_tag::CSI_SEC_MECH_LIST => ("CSIv2 mechanisms", None),
        _ => ("unknown", None),
    };
    let shown = content.as_deref().filter(|content| !content.is_empty());
    let _ = writeln!(text, "  component {tag:#010x} {name}{}", shown.map_or(String::new(), |one| format!(": {one}")));
    if content.is_none() {
        let _ = writeln!(text, "{}", octets(data));
    } else if tag == component_tag::POLICIES {
        policies(data, &Limits::DEFAULT)
            .unwrap_or(TaggedList::EMPTY)
            .iter()
            .for_each(|(number, value)| policy(text, number, value));
    }
}

/// Writes a policy on a line of its own, followed by its octets if the value is not known here.
fn policy(text: &mut String, number: u32, value: &[u8]) {
    let _ = match describe_policy(number, value) {
        (name, Some(value)) => writeln!(text, "    {name}: {value}"),
        (name, None) => writeln!(text, "    {name}, {} octets\n{}", value.len(), octets(value)),
    };
}

fn known(tag: u32) -> bool {
    use profile_tag::{IIOP, SHARED_MEMORY, TAO_DIOP, TAO_SHMIOP, TAO_UIOP, UNIX};
    [IIOP, UNIX, SHARED_MEMORY, TAO_UIOP, TAO_SHMIOP, TAO_DIOP].contains(&tag)
}

fn profile_name(tag: u32) -> String {
    match tag {
        profile_tag::IIOP => "IIOP".to_owned(),
        profile_tag::MULTIPLE_COMPONENTS => "multiple components".to_owned(),
        profile_tag::UNIX => "Corelane, Unix socket".to_owned(),
        profile_tag::SHARED_MEMORY => "Corelane, shared memory".to_owned(),
        profile_tag::TAO_UIOP => "TAO, Unix socket".to_owned(),
        profile_tag::TAO_SHMIOP => "TAO, shared memory".to_owned(),
        profile_tag::TAO_DIOP => "TAO, datagrams".to_owned(),
        _ => format!("tag {tag:#010x}"),
    }
}

fn orb_name(number: u32) -> String {
    let jdk = orb_type_id::JDK..=orb_type_id::JDK + 15;
    let name = match number {
        orb_type_id::CORELANE => "Corelane",
        orb_type_id::TAO => "TAO",
        orb_type_id::OMNIORB => "omniORB",
        orb_type_id::JACORB => "JacORB",
        _ if jdk.contains(&number) => "JDK",
        _ => "unknown",
    };
    format!("{name} ({number:#010x})")
}

fn code_sets(info: &CodeSetInfo) -> String {
    let one = |component: &CodeSetComponent| {
        let names: Vec<String> = component.conversion.iter().map(|&number| code_set(number)).collect();
        let others = if names.is_empty() { String::new() } else { format!(" (converts {})", names.join(", ")) };
        code_set(component.native) + &others
    };
    format!("char {}; wchar {}", one(&info.char), one(&info.wchar))
}

fn code_set(number: u32) -> String {
    match number {
        0 => "none".to_owned(),
        id::ISO_8859_1 => "ISO 8859-1".to_owned(),
        id::ISO_646 => "ASCII".to_owned(),
        id::UCS_2 => "UCS-2".to_owned(),
        id::UTF_16 => "UTF-16".to_owned(),
        id::UTF_8 => "UTF-8".to_owned(),
        _ => format!("{number:#010x}"),
    }
}

fn tao_endpoint(endpoint: &TaoEndpoint) -> String {
    let address = printable(&endpoint.address);
    let port = endpoint.port.map_or(String::new(), |port| format!(":{port}"));
    format!("{address}{port} at priority {}", endpoint.priority)
}

fn endpoint_text(endpoint: &Endpoint) -> String {
    match endpoint {
        Endpoint::Inet { host, port } => format!("{}:{port}", host_text(host)),
        Endpoint::Unix { host: Some(host), path } => format!("unix {} on {}", printable(path), printable(host)),
        Endpoint::Unix { host: None, path } => format!("unix {}", printable(path)),
        Endpoint::SharedMemory { host, path } => format!("shared memory {} on {}", printable(path), printable(host)),
    }
}

/// Returns the host, with brackets around an IPv6 address so that a port can follow.
fn host_text(host: &str) -> String {
    if host.contains(':') { format!("[{}]", printable(host)) } else { printable(host) }
}

/// Formats octets as indented hexadecimal lines with their characters, at most [`MOST_SHOWN`] of
/// them.
fn octets(data: &[u8]) -> String {
    let mut text = String::new();
    for (index, row) in data[..data.len().min(MOST_SHOWN)].chunks(16).enumerate() {
        let hex: Vec<String> = row.iter().map(|octet| format!("{octet:02x}")).collect();
        let letters: String =
            row.iter().map(|&octet| if octet.is_ascii_graphic() { char::from(octet) } else { '.' }).collect();
        let _ = writeln!(text, "            {:04x}  {:<47}  {letters}", index * 16, hex.join(" "));
    }
    if data.len() > MOST_SHOWN {
        let _ = writeln!(text, "            and {} more", data.len() - MOST_SHOWN);
    }
    text.pop();
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_wire::codeset::CharSet;
    use corelane_wire::giop::Version;
    use corelane_wire::ior::TaggedComponent;
    use corelane_wire::rt::PriorityModelValue;

    fn shown(words: &[&str]) -> (u8, String) {
        let mut out = Vec::new();
        let status = run(words.iter().map(OsString::from), &mut out);
        (status, String::from_utf8(out).unwrap())
    }

    #[test]
    fn everything_in_a_reference_is_shown() {
        let model = PriorityModelValue { model: 0, server_priority: 7 }.encode().unwrap();
        let components = [
            TaggedComponent::orb_type(orb_type_id::OMNIORB).unwrap(),
            TaggedComponent::code_sets(&CodeSetInfo::for_native(CharSet::Utf8)).unwrap(),
            TaggedComponent::alternate_address("::1", 99).unwrap(),
            TaggedComponent::unix_transport("here", "/tmp/socket").unwrap(),
            TaggedComponent::policies(&[(40, model), (24, vec![0, 0, 0, 3]), (4711, vec![0xee; 3])]).unwrap(),
            TaggedComponent { tag: 0x7777, data: vec![0xab; 300] },
        ];
        let address = Address::Inet { host: "192.0.2.1", port: 2809 };
        let iiop = TaggedProfile::of(Version { major: 1, minor: 2 }, address, b"a key\x01", &components).unwrap();
        let unknown = TaggedProfile { tag: 0x1234_5678, data: vec![1, 2, 3] };
        let broken = TaggedProfile { tag: profile_tag::IIOP, data: vec![0] };
        let ior = Ior { type_id: "IDL:Some\x1b/Type:1.0".into(), profiles: vec![iiop, unknown, broken] };
        let (status, text) = shown(&[&ior.to_text().unwrap()]);
        assert_eq!(status, DONE);
        for part in [
            "IDL:Some\\u{1b}/Type:1.0",
            "IIOP",
            "version   1.2",
            "192.0.2.1:2809",
            "6 octets, a%20key%01",
            "61 20 6b 65 79 01",
            "omniORB (0x41545400)",
            "char UTF-8 (converts ISO 8859-1); wchar UTF-16",
            "alternate address: [::1]:99",
            "/tmp/socket on here",
            "0x00000002 policies\n    priority model (type 40): CLIENT_PROPAGATED, server priority 7\n",
            "    sync scope (type 24): SYNC_WITH_TARGET (3)\n    type 4711, 3 octets\n            0000  ee ee ee",
            "0x00007777 unknown",
            "and 44 more",
            "tag 0x12345678",
            "malformed",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn written_references_are_shown_too() {
        let (status, text) = shown(&["corbaloc:iiop:1.2@host.example:12,:other/Key", "corbaloc:rir:/Thing"]);
        assert_eq!(status, DONE);
        assert!(text.contains("host.example:12") && text.contains("other:2809") && text.contains("Key"), "{text}");
        assert!(text.contains("initial reference of the ORB: Thing"), "{text}");
        let (_, text) = shown(&["corbaname::host#shop/orders"]);
        assert!(text.contains("shop/orders") && text.contains("NameService"), "{text}");
        assert!(shown(&[&Ior::NIL.to_text().unwrap()]).1.contains("nil"));
    }

    #[test]
    fn what_is_no_reference_is_refused_and_the_others_still_shown() {
        let (status, text) = shown(&["IOR:00zz", "corbaloc::host/k"]);
        assert_eq!(status, NOT_DONE);
        assert!(text.contains("error: `IOR:00zz` is not a reference") && text.contains("host:2809"), "{text}");
        assert_eq!(shown(&[]).0, WRONG_USAGE);
        assert_eq!(shown(&["--more"]).0, WRONG_USAGE);
        assert_eq!(shown(&["--help"]), (DONE, USAGE.to_owned()));
    }
}
