//! References as JSON (docs/commands.md has the schema).

use corelane_wire::Limits;
use corelane_wire::cdr::{CdrError, Decoder, TaggedList};
use corelane_wire::ior::{
    Corbaloc, Corbaname, Ior, ObjectUrl, ProfileAddress, ProfileEndpoint, TaggedProfile, escape_key, profile_tag,
};
use serde_json::{Map, Value as Json, json};

use super::content::{content, profile_name};
use crate::json::hexadecimal;

/// Describes a reference. Fails if a `corbaloc:` cannot be encoded as a reference.
pub(super) fn describe(url: &ObjectUrl) -> Result<Json, CdrError> {
    let mut shown = Map::new();
    shown.insert("schema".to_owned(), json!(1));
    let form = match url {
        ObjectUrl::Ior(ior) => {
            reference(&mut shown, ior);
            "IOR"
        }
        ObjectUrl::Corbaloc(corbaloc) => {
            location(&mut shown, corbaloc)?;
            "corbaloc"
        }
        ObjectUrl::Corbaname(Corbaname { context, name }) => {
            shown.insert("name".to_owned(), json!(name));
            location(&mut shown, context)?;
            "corbaname"
        }
        _ => "unknown",
    };
    shown.insert("form".to_owned(), json!(form));
    Ok(Json::Object(shown))
}

fn location(shown: &mut Map<String, Json>, corbaloc: &Corbaloc) -> Result<(), CdrError> {
    if let Some(name) = corbaloc.initial_reference() {
        shown.insert("initial_reference".to_owned(), json!(escape_key(name)));
        return Ok(());
    }
    reference(shown, &corbaloc.to_ior()?);
    Ok(())
}

fn reference(shown: &mut Map<String, Json>, ior: &Ior) {
    shown.insert("nil".to_owned(), json!(ior.is_nil()));
    shown.insert("type_id".to_owned(), json!(ior.type_id));
    shown.insert("profiles".to_owned(), ior.profiles.iter().map(profile).collect());
}

fn profile(tagged: &TaggedProfile) -> Json {
    let mut shown = json!({
        "tag": tagged.tag,
        "name": profile_name(tagged.tag),
        "data": hexadecimal(&tagged.data),
    });
    if tagged.tag == profile_tag::MULTIPLE_COMPONENTS {
        let list = Decoder::for_encapsulation(&tagged.data)
            .and_then(|mut decoder| TaggedList::parse(&mut decoder, Limits::DEFAULT.max_tagged_components));
        match list {
            Ok(list) => shown["components"] = components(tagged.tag, list),
            Err(error) => shown["error"] = json!(error.to_string()),
        }
        return shown;
    }
    match tagged.parse() {
        Ok(profile) => {
            shown["version"] = json!(format!("{}.{}", profile.version.major, profile.version.minor));
            shown["address"] = address(profile.address);
            shown["connect"] = profile.endpoints().iter().map(endpoint).collect();
            let key = profile.object_key;
            shown["key"] = json!({ "octets": hexadecimal(key), "text": escape_key(key) });
            shown["components"] = components(tagged.tag, profile.components);
        }
        Err(error) => shown["error"] = json!(error.to_string()),
    }
    shown
}

fn address(address: ProfileAddress<'_>) -> Json {
    match address {
        ProfileAddress::Inet { host, port } => json!({ "host": host, "port": port }),
        ProfileAddress::Unix { host, path } | ProfileAddress::SharedMemory { host, path } => {
            json!({ "host": host, "path": path })
        }
        ProfileAddress::Other { scheme, address } => json!({ "scheme": scheme, "address": address }),
        ProfileAddress::Uiop { path } => json!({ "path": path }),
    }
}

fn endpoint(endpoint: &ProfileEndpoint) -> Json {
    match endpoint {
        ProfileEndpoint::Inet { host, port } => json!({ "transport": "tcp", "host": host, "port": port }),
        ProfileEndpoint::Unix { host, path } => json!({ "transport": "unix", "host": host, "path": path }),
        ProfileEndpoint::SharedMemory { host, path } => json!({ "transport": "shm", "host": host, "path": path }),
        ProfileEndpoint::Other { scheme, address } => json!({ "transport": scheme, "address": address }),
    }
}

fn components(profile: u32, list: TaggedList<'_>) -> Json {
    let one = |(tag, data): (u32, &[u8])| {
        let content = content(profile, tag, data);
        json!({ "tag": tag, "name": content.name, "data": hexadecimal(data), "value": content.json })
    };
    list.iter().map(one).collect()
}
