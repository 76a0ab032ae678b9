//! References as the vectors describe them.

use corelane_wire::codeset::{CodeSetComponent, CodeSetInfo};
use corelane_wire::ior::{
    Address, Ior, Profile, TaggedComponent, TaggedProfile, TaoEndpoint, alternate_address, component_tag, orb_type,
    policies,
};
use corelane_wire::{Decoder, Limits};
use serde_json::{Value, json};

use crate::hex;

pub(crate) fn ior(ior: &Ior) -> Value {
    let profiles: Vec<Value> = ior.profiles.iter().map(|one| profile(one.tag, &one.data)).collect();
    json!({"type_id": ior.type_id, "profiles": profiles})
}

pub(crate) fn profile(tag: u32, data: &[u8]) -> Value {
    let profile = Profile::parse(tag, data, &Limits::DEFAULT).unwrap();
    let all: Vec<TaggedComponent> =
        profile.components.iter().map(|(tag, data)| TaggedComponent { tag, data: data.to_vec() }).collect();
    let again = TaggedProfile::of(profile.version, profile.address, profile.object_key, &all).unwrap();
    assert_eq!(Profile::parse(tag, &again.data, &Limits::DEFAULT).unwrap(), profile);
    let mut out = json!({
        "tag": tag,
        "octets": data.len(),
        "little_endian": data[0] & 1 == 1,
        "version": profile.version.to_string(),
        "object_key_hex": hex(profile.object_key),
        "components": all.iter().map(|one| component(tag, one)).collect::<Vec<_>>(),
        "octets_after_the_last_component": data.len() - again.data.len(),
    });
    match profile.address {
        Address::Inet { host, port } => {
            out["host"] = json!(host);
            out["port"] = json!(port);
        }
        Address::Uiop { path } | Address::Unix { path, .. } => out["rendezvous_point"] = json!(path),
    }
    out
}

fn set(component: &CodeSetComponent) -> Value {
    let number = |number: &u32| format!("0x{number:08x}");
    json!({"native": number(&component.native), "conversion": component.conversion.iter().map(number).collect::<Vec<_>>()})
}

fn component(profile: u32, component: &TaggedComponent) -> Value {
    let data = component.data.as_slice();
    let mut out = json!({"tag": component.tag, "octets": data.len()});
    let again = match component.tag {
        component_tag::ORB_TYPE => {
            let number = orb_type(data).unwrap();
            out["orb_type"] = json!(format!("0x{number:08x}"));
            TaggedComponent::orb_type(number)
        }
        component_tag::CODE_SETS => {
            let info = CodeSetInfo::parse(data).unwrap();
            out["char"] = set(&info.char);
            out["wchar"] = set(&info.wchar);
            TaggedComponent::code_sets(&info)
        }
        component_tag::ALTERNATE_IIOP_ADDRESS => {
            let (host, port) = alternate_address(data).unwrap();
            out["host"] = json!(host);
            out["port"] = json!(port);
            TaggedComponent::alternate_address(host, port)
        }
        component_tag::TAO_ENDPOINTS => {
            let endpoints = TaoEndpoint::parse_all(profile, data).unwrap();
            out["endpoints"] = endpoints.iter().map(endpoint).collect();
            TaggedComponent::tao_endpoints(&endpoints)
        }
        component_tag::POLICIES => {
            let values = policies(data).unwrap();
            out["policies"] = values.iter().map(policy).collect();
            let values: Vec<_> = values.iter().map(|(policy, value)| (policy, value.to_vec())).collect();
            TaggedComponent::policies(&values)
        }
        _ => Ok(component.clone()),
    };
    out["octets_after_the_last_value"] = json!(data.len() - again.unwrap().data.len());
    out
}

fn endpoint(endpoint: &TaoEndpoint) -> Value {
    match endpoint.port {
        Some(port) => json!({"host": endpoint.address, "port": port, "priority": endpoint.priority}),
        None => json!({"rendezvous_point": endpoint.address, "priority": endpoint.priority}),
    }
}

/// The RT policies, whose values belong to the ORB and not to this crate.
fn policy((number, value): (u32, &[u8])) -> Value {
    let mut out = json!({"type": number, "value_octets": value.len()});
    let mut d = Decoder::for_encapsulation(value).unwrap();
    match number {
        40 => {
            out["model"] = json!(["CLIENT_PROPAGATED", "SERVER_DECLARED"][d.read_enum(2).unwrap() as usize]);
            out["server_priority"] = json!(d.read_i16().unwrap());
        }
        43 => {
            let len = d.read_len(4).unwrap();
            out["protocols"] = (0..len).map(|_| protocol(&mut d)).collect();
        }
        45 => {
            let len = d.read_len(4).unwrap();
            out["bands"] =
                (0..len).map(|_| json!({"low": d.read_i16().unwrap(), "high": d.read_i16().unwrap()})).collect();
        }
        _ => panic!("policy {number}"),
    }
    assert_eq!(d.remaining(), 0);
    out
}

fn protocol(d: &mut Decoder<'_>) -> Value {
    let kind = d.read_u32().unwrap();
    let (send, receive) = (d.read_i32().unwrap(), d.read_i32().unwrap());
    let mut properties = json!({"send_buffer_size": send, "recv_buffer_size": receive});
    if kind != 0 {
        return json!({"protocol_type": kind, "unix_domain": properties});
    }
    for name in ["keep_alive", "dont_route", "no_delay"] {
        properties[name] = json!(d.read_bool().unwrap());
    }
    json!({"protocol_type": kind, "tcp": properties})
}
