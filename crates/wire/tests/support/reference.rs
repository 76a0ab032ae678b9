use corelane_wire::Limits;
use corelane_wire::codeset::{CodeSetComponent, CodeSetInfo};
use corelane_wire::ior::{
    Ior, Profile, ProfileAddress, TaggedComponent, TaggedProfile, TaoEndpoint, component_tag, parse_alternate_address,
    parse_orb_type, parse_policies,
};
use corelane_wire::rt::{self, PriorityModelValue, ProtocolValue, policy_type};
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
    let again = TaggedProfile::encode(profile.version, profile.address, profile.object_key, &all).unwrap();
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
        ProfileAddress::Inet { host, port } => {
            out["host"] = json!(host);
            out["port"] = json!(port);
        }
        ProfileAddress::Uiop { path }
        | ProfileAddress::Unix { path, .. }
        | ProfileAddress::SharedMemory { path, .. } => {
            out["rendezvous_point"] = json!(path);
        }
        ProfileAddress::Other { .. } => panic!("a reference of another ORB with an added transport"),
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
            let number = parse_orb_type(data).unwrap();
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
            let (host, port) = parse_alternate_address(data).unwrap();
            out["host"] = json!(host);
            out["port"] = json!(port);
            TaggedComponent::alternate_address(host, port)
        }
        component_tag::TAO_ENDPOINTS => {
            let endpoints = TaoEndpoint::parse_all(profile, data, &Limits::DEFAULT).unwrap();
            out["endpoints"] = endpoints.iter().map(endpoint).collect();
            TaggedComponent::tao_endpoints(&endpoints)
        }
        component_tag::POLICIES => {
            let values = parse_policies(data, &Limits::DEFAULT).unwrap();
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

fn policy((number, value): (u32, &[u8])) -> Value {
    let mut out = json!({"type": number, "value_octets": value.len()});
    match number {
        policy_type::PRIORITY_MODEL => {
            let found = PriorityModelValue::parse(value).unwrap();
            out["model"] = json!(["CLIENT_PROPAGATED", "SERVER_DECLARED"][found.model as usize]);
            out["server_priority"] = json!(found.server_priority);
            assert_eq!(found.encode().unwrap().len(), value.len());
        }
        policy_type::CLIENT_PROTOCOL => {
            let found = rt::parse_protocols(value, &Limits::DEFAULT).unwrap();
            out["protocols"] = found.iter().map(protocol).collect();
            assert_eq!(rt::encode_protocols(&found).unwrap().len(), value.len());
        }
        policy_type::PRIORITY_BANDED_CONNECTION => {
            let found = rt::parse_priority_bands(value).unwrap();
            out["bands"] = found.iter().map(|(low, high)| json!({"low": low, "high": high})).collect();
            assert_eq!(rt::encode_priority_bands(&found).unwrap().len(), value.len());
        }
        _ => panic!("policy {number}"),
    }
    out
}

fn protocol(protocol: &ProtocolValue) -> Value {
    match *protocol {
        ProtocolValue::Tcp { send_buffer, receive_buffer, keep_alive, dont_route, no_delay } => {
            let properties = json!({"send_buffer_size": send_buffer, "recv_buffer_size": receive_buffer,
                "keep_alive": keep_alive, "dont_route": dont_route, "no_delay": no_delay});
            json!({"protocol_type": 0, "tcp": properties})
        }
        ProtocolValue::Unix { tag, send_buffer, receive_buffer } => {
            let properties = json!({"send_buffer_size": send_buffer, "recv_buffer_size": receive_buffer});
            json!({"protocol_type": tag, "unix_domain": properties})
        }
        ProtocolValue::SharedMemory | ProtocolValue::Other => panic!("a reference of TAO with a protocol of Corelane"),
    }
}
