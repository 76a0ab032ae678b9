//! Names and meaning of the parts of references: profiles, components, policies.

use corelane_wire::Limits;
use corelane_wire::cdr::{CdrError, Decoder};
use corelane_wire::codeset::{CodeSetComponent, CodeSetInfo, id};
use corelane_wire::ior::{
    ProfileEndpoint, TaoEndpoint, component_tag, orb_type_id, parse_alternate_address, parse_orb_type, parse_policies,
    parse_unix_transport, profile_tag,
};
use serde_json::{Value as Json, json};

use crate::json::hexadecimal;
use crate::policies::describe as describe_policy;
use crate::text::printable;

/// The tags and names of the components of CORBA 3.0.3 section 13.6.6 and of other ORBs.
const NAMES: [(u32, &str); 37] = [
    (5, "complete object key"),
    (6, "endpoint id position"),
    (12, "location policy"),
    (13, "association options"),
    (14, "security name"),
    (15, "SPKM 1"),
    (16, "SPKM 2"),
    (17, "Kerberos 5"),
    (18, "CSI ECMA secret"),
    (19, "CSI ECMA hybrid"),
    (21, "CSI ECMA public"),
    (22, "generic security mechanism"),
    (23, "firewall"),
    (24, "SCCP contact"),
    (26, "transaction policy"),
    (27, "fault-tolerant group"),
    (28, "fault-tolerant primary"),
    (29, "fault-tolerant heartbeat"),
    (30, "message routers"),
    (component_tag::CSI_SEC_MECH_LIST, "CSIv2 mechanisms"),
    (34, "no security"),
    (35, "SECIOP"),
    (36, "TLS"),
    (37, "activity policy"),
    (39, "multicast group"),
    (40, "multicast group address"),
    (100, "DCE string binding"),
    (101, "DCE binding name"),
    (102, "DCE no pipes"),
    (103, "DCE security mechanism"),
    (123, "INET security"),
    (0x5441_4f01, "TAO SSL endpoints"),
    (0x4154_5401, "omniORB bidirectional"),
    (component_tag::OMNIORB_PERSISTENT_ID, "omniORB persistent id"),
    (0x4154_5404, "omniORB restricted connection"),
    (0x5355_4e00, "JDK container id"),
    (0x5355_4e01, "JDK request partitioning"),
];

pub(super) struct Content<'d> {
    pub(super) name: &'static str,
    /// The content in one line; `None` if the format is unknown or the content is malformed.
    pub(super) text: Option<String>,
    /// Lines of text. A line of a value with an unknown format has the octets of the value.
    pub(super) details: Vec<(String, Option<&'d [u8]>)>,
    pub(super) json: Json,
}

/// Describes a component. `profile` is the tag of the component's profile.
pub(super) fn content(profile: u32, tag: u32, data: &[u8]) -> Content<'_> {
    let known = |name, content: Result<(String, Json), CdrError>| {
        let (text, json) = content.map_or((None, Json::Null), |(text, json)| (Some(text), json));
        Content { name, text, details: Vec::new(), json }
    };
    match tag {
        component_tag::ORB_TYPE => {
            known("ORB type", parse_orb_type(data).map(|number| (orb_name(number), json!(number))))
        }
        component_tag::CODE_SETS => known("code sets", code_sets(data)),
        component_tag::POLICIES => policy_list(data),
        component_tag::ALTERNATE_IIOP_ADDRESS => {
            let shown = |(host, port): (&str, u16)| {
                (format!("{}:{port}", host_text(host)), json!({ "transport": "tcp", "host": host, "port": port }))
            };
            known("alternate address", parse_alternate_address(data).map(shown))
        }
        component_tag::OMNIORB_UNIX_TRANSPORT => {
            let shown = |(host, path): (&str, &str)| {
                let text = format!("{} on {}", printable(path), printable(host));
                (text, json!({ "transport": "unix", "host": host, "path": path }))
            };
            known("omniORB Unix socket", parse_unix_transport(data).map(shown))
        }
        component_tag::TAO_ENDPOINTS | component_tag::LANE_ENDPOINTS => {
            let name = if tag == component_tag::TAO_ENDPOINTS { "TAO endpoints" } else { "endpoints of lanes" };
            known(name, TaoEndpoint::parse_all(profile, data, &Limits::DEFAULT).map(|all| lanes(profile, &all)))
        }
        component_tag::SSL_SEC_TRANS => known("SSL", ssl(data)),
        25 => known("Java code base", java_code_base(data)),
        31 | 32 => {
            let name = if tag == 31 { "OTS policy" } else { "invocation policy" };
            let number = Decoder::for_encapsulation(data).and_then(|mut decoder| decoder.read_u16());
            known(name, number.map(|number| (number.to_string(), json!(number))))
        }
        38 => {
            let number = Decoder::for_encapsulation(data).and_then(|mut decoder| decoder.read_u8());
            known("RMI stream format", number.map(|number| (number.to_string(), json!(number))))
        }
        _ => {
            let name = NAMES.iter().find(|(number, _)| *number == tag).map_or("unknown", |(_, name)| *name);
            known(name, Err(CdrError::UnsupportedForm))
        }
    }
}

fn policy_list(data: &[u8]) -> Content<'_> {
    let name = "policies";
    let Ok(list) = parse_policies(data, &Limits::DEFAULT) else {
        return Content { name, text: None, details: Vec::new(), json: Json::Null };
    };
    let text = if list.is_empty() { "none" } else { "" }.to_owned();
    let (mut details, mut all) = (Vec::new(), Vec::new());
    for (number, value) in list.iter() {
        let (policy, shown) = describe_policy(number, value);
        all.push(json!({ "type": number, "name": policy, "value": shown, "data": hexadecimal(value) }));
        details.push(match shown {
            Some(shown) => (format!("{policy}: {shown}"), None),
            None => (format!("{policy}, {} octets", value.len()), Some(value)),
        });
    }
    Content { name, text: Some(text), details, json: Json::Array(all) }
}

fn code_sets(data: &[u8]) -> Result<(String, Json), CdrError> {
    let info = CodeSetInfo::parse(data)?;
    let text = |component: &CodeSetComponent| {
        let names: Vec<String> = component.conversion.iter().map(|&number| code_set(number)).collect();
        let others = if names.is_empty() { String::new() } else { format!(" (converts {})", names.join(", ")) };
        code_set(component.native) + &others
    };
    let json = |component: &CodeSetComponent| {
        let one = |number: u32| json!({ "number": number, "name": code_set(number) });
        let conversion: Vec<Json> = component.conversion.iter().map(|&number| one(number)).collect();
        json!({ "native": one(component.native), "conversion": conversion })
    };
    let line = format!("char {}; wchar {}", text(&info.char), text(&info.wchar));
    Ok((line, json!({ "char": json(&info.char), "wchar": json(&info.wchar) })))
}

pub(crate) fn code_set(number: u32) -> String {
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

fn lanes(profile: u32, all: &[TaoEndpoint]) -> (String, Json) {
    let text = |endpoint: &TaoEndpoint| {
        let address = printable(&endpoint.address);
        let port = endpoint.port.map_or(String::new(), |port| format!(":{port}"));
        format!("{address}{port} at priority {}", endpoint.priority)
    };
    let json = |endpoint: &TaoEndpoint| match endpoint.port {
        Some(port) => json!({ "host": endpoint.address, "port": port, "priority": endpoint.priority }),
        None if profile == profile_tag::OTHER_TRANSPORT => {
            json!({ "address": endpoint.address, "priority": endpoint.priority })
        }
        None => json!({ "path": endpoint.address, "priority": endpoint.priority }),
    };
    let texts: Vec<String> = all.iter().map(text).collect();
    (texts.join(", "), all.iter().map(json).collect())
}

fn ssl(data: &[u8]) -> Result<(String, Json), CdrError> {
    let mut decoder = Decoder::for_encapsulation(data)?;
    let (supports, requires, port) = (decoder.read_u16()?, decoder.read_u16()?, decoder.read_u16()?);
    let text = format!("port {port}, supports {}, requires {}", associations(supports), associations(requires));
    Ok((text, json!({ "port": port, "supports": supports, "requires": requires })))
}

fn associations(bits: u16) -> String {
    const OPTIONS: [(u16, &str); 7] = [
        (1, "no protection"),
        (2, "integrity"),
        (4, "confidentiality"),
        (8, "replay detection"),
        (16, "misordering detection"),
        (32, "trust in target"),
        (64, "trust in client"),
    ];
    let names: Vec<&str> = OPTIONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    if names.is_empty() { format!("{bits:#x}") } else { format!("{} ({bits:#x})", names.join(" + ")) }
}

fn java_code_base(data: &[u8]) -> Result<(String, Json), CdrError> {
    let text = Decoder::for_encapsulation(data)?.read_string()?;
    Ok((printable(&text), json!(text)))
}

pub(crate) fn is_known(tag: u32) -> bool {
    use profile_tag::{IIOP, OTHER_TRANSPORT, SHARED_MEMORY, TAO_DIOP, TAO_SHMIOP, TAO_UIOP, UNIX};
    [IIOP, UNIX, SHARED_MEMORY, OTHER_TRANSPORT, TAO_UIOP, TAO_SHMIOP, TAO_DIOP].contains(&tag)
}

pub(crate) fn profile_name(tag: u32) -> String {
    match tag {
        profile_tag::IIOP => "IIOP".to_owned(),
        profile_tag::MULTIPLE_COMPONENTS => "multiple components".to_owned(),
        2 => "SCCP".to_owned(),
        3 => "multicast group".to_owned(),
        0x5441_4f05 => "TAO, collocated".to_owned(),
        0x5441_4f0e => "TAO, SCTP".to_owned(),
        profile_tag::UNIX => "Corelane, Unix socket".to_owned(),
        profile_tag::SHARED_MEMORY => "Corelane, shared memory".to_owned(),
        profile_tag::OTHER_TRANSPORT => "Corelane, added transport".to_owned(),
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

pub(super) fn endpoint_text(endpoint: &ProfileEndpoint) -> String {
    match endpoint {
        ProfileEndpoint::Inet { host, port } => format!("{}:{port}", host_text(host)),
        ProfileEndpoint::Unix { host: Some(host), path } => format!("unix {} on {}", printable(path), printable(host)),
        ProfileEndpoint::Unix { host: None, path } => format!("unix {}", printable(path)),
        ProfileEndpoint::SharedMemory { host, path } => {
            format!("shared memory {} on {}", printable(path), printable(host))
        }
        ProfileEndpoint::Other { .. } => printable(&endpoint.to_string()),
    }
}

/// Returns the host, an IPv6 address in brackets, so that a port can follow.
pub(super) fn host_text(host: &str) -> String {
    if host.contains(':') { format!("[{}]", printable(host)) } else { printable(host) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_components_are_decoded_or_malformed() {
        let whole: Vec<u8> =
            [&[0, 0, 0, 0, 0, 0, 0, 2][..], b"h\0\x00\x05", &[0, 0, 0, 1, 0, 0, 0, 40, 0, 0, 0, 4, 0, 0, 0, 1]]
                .concat();
        let tags = (0..=45).chain(100..=125).chain(NAMES.iter().map(|(tag, _)| *tag));
        let tags = tags.chain([component_tag::TAO_ENDPOINTS, component_tag::LANE_ENDPOINTS]);
        for tag in tags.chain([component_tag::OMNIORB_UNIX_TRANSPORT]) {
            for profile in
                [profile_tag::IIOP, profile_tag::UNIX, profile_tag::OTHER_TRANSPORT, profile_tag::TAO_UIOP, 99]
            {
                for end in 0..=whole.len() {
                    let cut = &whole[..end];
                    let shown = content(profile, tag, cut);
                    assert_eq!(shown.text.is_none(), shown.json.is_null(), "{tag}");
                    for octet in [0, 0x7f, 0xff] {
                        let changed = [&cut[..end.saturating_sub(1)], &[octet], &whole[end..]].concat();
                        drop(content(profile, tag, &changed));
                    }
                }
            }
        }
    }
}
