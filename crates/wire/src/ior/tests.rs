use super::*;
use crate::cdr::{MemoryAccount, MemoryMeter, MemoryRefusal};
use crate::codeset::{CharSet, CodeSetInfo};
use crate::giop::Version;
use crate::{Endian, Limits};

fn url(text: &str) -> Result<ObjectUrl, UrlError> {
    ObjectUrl::parse(text, &Limits::DEFAULT)
}

fn corbaloc(text: &str) -> Corbaloc {
    match url(text) {
        Ok(ObjectUrl::Corbaloc(corbaloc)) => corbaloc,
        other => panic!("{other:?}"),
    }
}

fn iiop(minor: u8, host: &str, port: u16) -> CorbalocAddress {
    CorbalocAddress::Iiop { version: Version { major: 1, minor }, host: host.to_owned(), port }
}

#[test]
fn an_iiop_profile_octet_by_octet() {
    let data = b"\x00\x01\x02\xff\x00\x00\x00\x02h\x00\x0a\xf9\x00\x00\x00\x01K\x00\x00\x00\x00\x00\x00\x00";
    let profile = Profile::parse(0, data, &Limits::DEFAULT).unwrap();
    assert_eq!((profile.version, profile.object_key), (Version::GIOP_1_2, &b"K"[..]));
    assert_eq!(profile.address, ProfileAddress::Inet { host: "h", port: 2809 });
    assert_eq!(profile.endpoints(), [ProfileEndpoint::Inet { host: "h".into(), port: 2809 }]);
    let own = TaggedProfile::encode(profile.version, profile.address, b"K", &[]).unwrap();
    assert_eq!(own.parse().unwrap(), profile);
    for len in 0..data.len() {
        assert!(Profile::parse(0, &data[..len], &Limits::DEFAULT).is_err());
    }
    assert_eq!(Profile::parse(9, data, &Limits::DEFAULT), Err(CdrError::UnsupportedForm));
    assert_eq!(Profile::parse(0, b"\x00\x02\x00", &Limits::DEFAULT), Err(CdrError::UnsupportedForm));
}

#[test]
fn hosts_beyond_ascii_are_read_as_they_were_written() {
    for host in ["münchen.example", "名.example"] {
        for address in [
            ProfileAddress::Inet { host, port: 1 },
            ProfileAddress::Unix { host, path: "/run/s" },
            ProfileAddress::SharedMemory { host, path: "/run/s" },
        ] {
            let tagged = TaggedProfile::encode(Version::GIOP_1_2, address, b"K", &[]).unwrap();
            assert_eq!(tagged.parse().unwrap().address, address);
        }
        let components = [
            TaggedComponent::alternate_address(host, 9).unwrap(),
            TaggedComponent::unix_transport(host, "/run/s").unwrap(),
        ];
        let address = ProfileAddress::Inet { host, port: 1 };
        let tagged = TaggedProfile::encode(Version::GIOP_1_2, address, b"K", &components).unwrap();
        let unix = ProfileEndpoint::Unix { host: Some(host.into()), path: "/run/s".into() };
        let inet = |port| ProfileEndpoint::Inet { host: host.into(), port };
        assert_eq!(tagged.parse().unwrap().endpoints(), [inet(1), inet(9), unix]);
    }
}

#[test]
fn components_give_further_endpoints() {
    let components = [
        TaggedComponent::orb_type(orb_type_id::CORELANE).unwrap(),
        TaggedComponent::code_sets(&CodeSetInfo::for_native(CharSet::Utf8)).unwrap(),
        TaggedComponent::alternate_address("other", 9).unwrap(),
        TaggedComponent::unix_transport("here", "/run/s").unwrap(),
        TaggedComponent::policies(&[(37, vec![0, 0, 0, 1])]).unwrap(),
        TaggedComponent { tag: 0xdead, data: vec![1, 2, 3] },
    ];
    let nowhere = ProfileAddress::Inet { host: "255.255.255.255", port: 65535 };
    let tagged = TaggedProfile::encode(Version::GIOP_1_2, nowhere, b"key", &components).unwrap();
    let profile = tagged.parse().unwrap();
    assert_eq!(profile.components.len(), 6);
    assert_eq!(profile.components.find(0xdead), Some(&[1, 2, 3][..]));
    assert_eq!(profile.orb_type(), Some(orb_type_id::CORELANE));
    let sets = CodeSetInfo::parse(profile.components.find(component_tag::CODE_SETS).unwrap()).unwrap();
    assert_eq!(sets, CodeSetInfo::for_native(CharSet::Utf8));
    let read = parse_policies(profile.components.find(component_tag::POLICIES).unwrap(), &Limits::DEFAULT).unwrap();
    assert_eq!(read.find(37), Some(&[0, 0, 0, 1][..]));
    let unix = ProfileEndpoint::Unix { host: Some("here".into()), path: "/run/s".into() };
    assert_eq!(profile.endpoints(), [ProfileEndpoint::Inet { host: "other".into(), port: 9 }, unix]);
    let old = TaggedProfile::encode(Version::GIOP_1_0, nowhere, b"key", &components).unwrap();
    assert!(old.parse().unwrap().components.is_empty());
}

/// Profiles of TAO's shared-memory and UDP transports have the form of IIOP, but no TCP server
/// listens at their ports.
#[test]
fn addresses_of_other_protocols_are_not_endpoints() {
    let components = [
        TaggedComponent::alternate_address("other", 9).unwrap(),
        TaggedComponent::unix_transport("here", "/run/s").unwrap(),
    ];
    let address = ProfileAddress::Inet { host: "h", port: 2809 };
    let tagged = TaggedProfile::encode(Version::GIOP_1_2, address, b"K", &components).unwrap();
    assert_eq!(tagged.parse().unwrap().endpoints().len(), 3);
    for tag in [profile_tag::TAO_SHMIOP, profile_tag::TAO_DIOP] {
        let other = TaggedProfile { tag, data: tagged.data.clone() };
        let profile = other.parse().unwrap();
        assert_eq!((profile.tag, profile.address, profile.object_key), (tag, address, &b"K"[..]));
        assert_eq!(profile.endpoints(), []);
    }
}

#[test]
fn addresses_without_a_tcp_server_are_not_endpoints() {
    let endpoints = |host, port, components: &[TaggedComponent]| {
        let address = ProfileAddress::Inet { host, port };
        let tagged = TaggedProfile::encode(Version::GIOP_1_2, address, b"K", components).unwrap();
        tagged.parse().unwrap().endpoints()
    };
    assert_eq!(endpoints("h", 0, &[]), []);
    assert_eq!(endpoints("255.255.255.255", 1, &[]), []);
    assert_eq!(endpoints("255.255.255.255", 0, &[]), []);
    let alternates =
        [TaggedComponent::alternate_address("a", 0).unwrap(), TaggedComponent::alternate_address("b", 1).unwrap()];
    assert_eq!(endpoints("h", 0, &alternates), [ProfileEndpoint::Inet { host: "b".into(), port: 1 }]);
}

#[test]
fn profiles_of_a_reference_are_bounded() {
    let profile = TaggedProfile { tag: 0x1234, data: vec![1] };
    for (count, fits) in [(2, true), (3, true), (4, false), (5, false)] {
        let ior = Ior { type_id: String::new(), profiles: vec![profile.clone(); count] };
        let mut e = Encoder::new();
        ior.encode(&mut e).unwrap();
        let octets = e.into_reusable_buffer();
        let limits = Limits { max_profiles: 3, ..Limits::DEFAULT };
        let decoded = Ior::decode(&mut Decoder::new(&octets, Endian::NATIVE).with_limits(&limits));
        assert_eq!(decoded, if fits { Ok(ior) } else { Err(CdrError::LimitExceeded) }, "{count}");
    }
}

#[test]
fn components_of_a_profile_are_bounded() {
    let components = vec![TaggedComponent { tag: 9, data: Vec::new() }; 3];
    let address = ProfileAddress::Inet { host: "h", port: 1 };
    let tagged = TaggedProfile::encode(Version::GIOP_1_2, address, b"K", &components).unwrap();
    let parse = |components| {
        Profile::parse(0, &tagged.data, &Limits { max_tagged_components: components, ..Limits::DEFAULT }).map(drop)
    };
    assert_eq!((parse(4), parse(3), parse(2)), (Ok(()), Ok(()), Err(CdrError::LimitExceeded)));
}

#[test]
fn profiles_of_version_1_0_have_no_components() {
    let component = TaggedComponent { tag: 9, data: vec![1] };
    let of = |version, components| {
        TaggedProfile::encode(version, ProfileAddress::Inet { host: "h", port: 1 }, b"K", components).unwrap()
    };
    let (with, without) = (&[component][..], &[][..]);
    assert_eq!(of(Version::GIOP_1_0, with), of(Version::GIOP_1_0, without));
    let newer = of(Version::GIOP_1_1, with);
    assert!(newer.parse().unwrap().components.into_iter().eq([(9, &[1][..])]));
}

#[test]
fn nil_has_neither_a_type_nor_a_profile() {
    let profile = TaggedProfile { tag: 0x1234, data: vec![1] };
    assert!(Ior::NIL.is_nil());
    assert!(!Ior { type_id: "IDL:X:1.0".into(), profiles: Vec::new() }.is_nil());
    assert!(!Ior { type_id: String::new(), profiles: vec![profile] }.is_nil());
}

#[test]
fn unix_profiles_round_trip_in_both_forms() {
    let own = ProfileAddress::Unix { host: "here", path: "/run/ü" };
    let tao = ProfileAddress::Uiop { path: "rel.sock" };
    for (address, tag, host) in [(own, profile_tag::UNIX, Some("here".to_owned())), (tao, profile_tag::TAO_UIOP, None)]
    {
        let tagged = TaggedProfile::encode(Version::GIOP_1_2, address, b"k", &[]).unwrap();
        let profile = tagged.parse().unwrap();
        assert_eq!((tagged.tag, profile.address), (tag, address));
        let [ProfileEndpoint::Unix { host: found, .. }] = &profile.endpoints()[..] else { panic!() };
        assert_eq!(found, &host);
    }
    let shared = ProfileAddress::SharedMemory { host: "boot/4026531840", path: "/run/ü" };
    let tagged = TaggedProfile::encode(Version::GIOP_1_2, shared, b"k", &[]).unwrap();
    let profile = tagged.parse().unwrap();
    assert_eq!((tagged.tag, profile.address), (profile_tag::SHARED_MEMORY, shared));
    let endpoint = ProfileEndpoint::SharedMemory { host: "boot/4026531840".into(), path: "/run/ü".into() };
    assert_eq!(profile.endpoints(), [endpoint]);
    let bad = ProfileAddress::Uiop { path: "a\0b" };
    assert_eq!(TaggedProfile::encode(Version::GIOP_1_2, bad, b"k", &[]), Err(CdrError::NulInString));
}

#[test]
fn profile_of_another_transport_has_its_scheme_and_address() {
    let address = ProfileAddress::Other { scheme: "pipe", address: "a:ü" };
    let tagged = TaggedProfile::encode(Version::GIOP_1_0, address, b"k", &[]).unwrap();
    assert_eq!(tagged.tag, 0x434c_4e02);
    let octets = b"\0\x01\0\0\0\0\0\x05pipe\0\0\0\0\0\0\0\x05a:\xc3\xbc\0\0\0\0\0\0\0\x01k";
    let profile = Profile::parse(tagged.tag, octets, &Limits::DEFAULT).unwrap();
    assert_eq!((profile, profile.address), (tagged.parse().unwrap(), address));
    let endpoint = ProfileEndpoint::Other { scheme: "pipe".into(), address: "a:ü".into() };
    assert_eq!((endpoint.to_string().as_str(), endpoint.as_address()), ("pipe:a:ü", address));
    assert_eq!(profile.endpoints(), [endpoint]);
    for (scheme, address) in [("pi\0pe", "x"), ("pipe", "\0")] {
        let address = ProfileAddress::Other { scheme, address };
        assert_eq!(TaggedProfile::encode(Version::GIOP_1_2, address, b"k", &[]), Err(CdrError::NulInString));
    }
    for end in 0..octets.len() {
        assert!(Profile::parse(tagged.tag, &octets[..end], &Limits::DEFAULT).is_err(), "{end}");
    }
}

#[test]
fn lanes_have_the_form_of_their_profile() {
    let unix =
        |host: Option<&str>, path: &str| ProfileEndpoint::Unix { host: host.map(str::to_owned), path: path.into() };
    let inet = |host: &str, port| ProfileEndpoint::Inet { host: host.into(), port };
    let shared = |path: &str| ProfileEndpoint::SharedMemory { host: "m".into(), path: path.into() };
    let other = |address: &str| ProfileEndpoint::Other { scheme: "s".into(), address: address.into() };
    let forms = [
        [inet("a", 1), inet("b", 1)],
        [unix(Some("m"), "a"), unix(Some("m"), "b")],
        [unix(None, "a"), unix(None, "b")],
        [shared("a"), shared("b")],
        [other("a"), other("b")],
    ];
    for lanes in forms {
        let port = matches!(lanes[0], ProfileEndpoint::Inet { .. }).then_some(1);
        let listed = [("a", -1), ("b", 7)];
        let listed = listed.map(|(address, priority)| TaoEndpoint { address: address.into(), port, priority });
        for component in [TaggedComponent::tao_endpoints(&listed), TaggedComponent::lane_endpoints(&listed)] {
            let of = |components: &[TaggedComponent]| {
                TaggedProfile::encode(Version::GIOP_1_2, lanes[0].as_address(), b"k", components).unwrap()
            };
            let tagged = of(&[component.unwrap()]);
            let profile = tagged.parse().unwrap();
            assert_eq!(profile.endpoints(), lanes[..1]);
            assert_eq!(profile.lane_endpoints(&Limits::DEFAULT), [(lanes[0].clone(), -1), (lanes[1].clone(), 7)]);
            assert_eq!(profile.lane_endpoints(&Limits { max_lane_endpoints: 1, ..Limits::DEFAULT }), []);
            assert_eq!(of(&[]).parse().unwrap().lane_endpoints(&Limits::DEFAULT), []);
        }
    }
    // Corelane cannot connect to TAO's datagram transport, so such a profile has no lanes.
    let lane = TaoEndpoint { address: "h".into(), port: Some(1), priority: 1 };
    let address = ProfileAddress::Inet { host: "h", port: 1 };
    let components = [TaggedComponent::tao_endpoints(&[lane]).unwrap()];
    let mut tagged = TaggedProfile::encode(Version::GIOP_1_2, address, b"k", &components).unwrap();
    tagged.tag = profile_tag::TAO_DIOP;
    assert_eq!(tagged.parse().unwrap().lane_endpoints(&Limits::DEFAULT), []);
}

#[test]
fn tao_endpoints_are_parsed_in_both_forms() {
    let inet = [
        TaoEndpoint { address: "h".into(), port: Some(65535), priority: -1 },
        TaoEndpoint { address: "h2".into(), port: Some(1), priority: 30 },
    ];
    let unix = [TaoEndpoint { address: "a.sock".into(), port: None, priority: 10 }];
    let written = TaggedComponent::tao_endpoints(&inet).unwrap();
    assert_eq!(TaoEndpoint::parse_all(profile_tag::IIOP, &written.data, &Limits::DEFAULT).unwrap(), inet);
    let written = TaggedComponent::tao_endpoints(&unix).unwrap();
    assert_eq!(TaoEndpoint::parse_all(profile_tag::TAO_UIOP, &written.data, &Limits::DEFAULT).unwrap(), unix);
}

#[test]
fn every_spelling_of_nil_is_parsed() {
    for text in [
        "IOR:00000000000000010000000000000000",
        "ior:01FFFFFF0100000000FFFFFF00000000\r\n",
        " IOR:01000000010000000000000000000000\n",
        "IOR:01000000000000000000000000000000",
    ] {
        assert!(Ior::from_text(text, &Limits::DEFAULT).unwrap().is_nil(), "{text}");
    }
    let cut = Ior::from_text("IOR:010000000100000000000000", &Limits::DEFAULT);
    assert_eq!(cut, Err(UrlError::MalformedIor(CdrError::Truncated)));
    let mut e = Encoder::new();
    e.set_endian(Endian::Big);
    Ior::NIL.encode(&mut e).unwrap();
    assert_eq!(e.into_reusable_buffer(), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn stringified_references_round_trip_with_unknown_profiles() {
    let known = TaggedProfile::encode(Version::GIOP_1_2, ProfileAddress::Inet { host: "::1", port: 1 }, b"\xff\0", &[])
        .unwrap();
    let unknown = TaggedProfile { tag: 0x1234_5678, data: vec![9, 8, 7] };
    let ior = Ior { type_id: "IDL:Ü:1.0".into(), profiles: vec![unknown, known] };
    let text = ior.to_text().unwrap();
    assert_eq!(Ior::from_text(&text, &Limits::DEFAULT), Ok(ior.clone()));
    assert_eq!(ior.known_profiles().count(), 1);
    assert!(format!("{ior:?}").contains("0x12345678"));
    for bad in ["IOR:0", "IOR:0g", "IOR:00é", "IO", ""] {
        assert!(Ior::from_text(bad, &Limits::DEFAULT).is_err(), "{bad}");
    }
    let short = Limits { max_reference_text_length: 10, ..Limits::DEFAULT };
    assert_eq!(Ior::from_text(&text, &short), Err(UrlError::TooLong));
}

#[test]
fn corbaloc_addresses_are_parsed_and_written() {
    assert_eq!(corbaloc("corbaloc::h/K").addresses, [iiop(0, "h", 2809)]);
    let two = corbaloc("corbaloc:iiop:ns1.example.com,IIOP:1.2@ns2.example.com:5000/NameService");
    assert_eq!(two.addresses, [iiop(0, "ns1.example.com", 2809), iiop(2, "ns2.example.com", 5000)]);
    let six = corbaloc("corbaloc:iiop:1.2@[2001:db8::1]:2810,:[::1]/Key");
    assert_eq!(six.addresses, [iiop(2, "2001:db8::1", 2810), iiop(0, "::1", 2809)]);
    assert_eq!(six.to_string(), "corbaloc:iiop:1.2@[2001:db8::1]:2810,iiop:[::1]:2809/Key");
    let ior = six.to_ior().unwrap();
    let first = ior.profiles[0].parse().unwrap();
    assert_eq!(
        (first.address, first.object_key),
        (ProfileAddress::Inet { host: "2001:db8::1", port: 2810 }, &b"Key"[..])
    );
    let rir = corbaloc("corbaloc:rir:/X");
    assert_eq!((rir.initial_reference(), rir.to_ior().unwrap().is_nil()), (Some(&b"X"[..]), true));
    assert_eq!(corbaloc("corbaloc:rir:").initial_reference(), Some(NAME_SERVICE_KEY));
    assert_eq!((corbaloc("corbaloc::h").key.len(), six.initial_reference()), (0, None));
}

#[test]
fn corbaloc_keys_are_escaped_both_ways() {
    assert_eq!(corbaloc("corbaloc::h/Prod%2fA%20b").key, b"Prod/A b");
    assert_eq!(corbaloc("corbaloc::h/a/b,c").key, b"a/b,c");
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(unescape_key(&escape_key(&all)).unwrap(), all);
    assert_eq!(escape_key(b"a/b c%"), "a/b%20c%25");
    for bad in ["corbaloc::h/%", "corbaloc::h/%2", "corbaloc::h/%g0", "corbaloc::h/a b"] {
        assert_eq!(url(bad), Err(UrlError::BadEscape), "{bad}");
    }
}

#[test]
fn corbaloc_errors_have_the_minor_codes_of_the_specification() {
    for (text, minor) in [
        ("http://h/K", 7),
        ("corbaloc:foo:h/K", 7),
        ("corbaloc::/K", 8),
        ("corbaloc:h/K", 8),
        ("corbaloc::h:/K", 8),
        ("corbaloc::h:65536/K", 8),
        ("corbaloc::h:+1/K", 8),
        ("corbaloc::2.0@h/K", 8),
        ("corbaloc::1@h/K", 8),
        ("corbaloc::[::1/K", 8),
        ("corbaloc::[::1]x/K", 8),
        ("corbaloc::h,/K", 8),
        ("corbaloc:rir:,:h/K", 9),
        ("corbaloc::h/%", 10),
        ("corbaname::h#%ff", 9),
    ] {
        let error = url(text).unwrap_err();
        assert_eq!(error.minor() & 0xfff, minor, "{text}: {error}");
    }
    let many = format!("corbaloc:{}/K", vec![":h"; 65].join(","));
    assert_eq!(url(&many), Err(UrlError::TooLong));
}

#[test]
fn host_with_a_forbidden_character_is_refused() {
    for octet in 0..=0xff_u8 {
        let sign = char::from(octet);
        let is_host = sign.is_ascii_graphic() && !"[]@/,#%:".contains(sign);
        for text in [format!("corbaloc::a{sign}b/K"), format!("corbaloc::[a{sign}b]/K")] {
            if "@/,#".contains(sign) || (sign == ':' && !text.contains('[')) {
                continue;
            }
            let is_fine = is_host || (sign == ':' && text.contains('['));
            let Ok(ObjectUrl::Corbaloc(read)) = url(&text) else {
                assert!(!is_fine, "{text:?}");
                continue;
            };
            assert!(is_fine, "{text:?}");
            assert_eq!(read.addresses, [iiop(0, &format!("a{sign}b"), 2809)]);
        }
    }
}

#[test]
fn length_and_addresses_of_a_text_are_bounded() {
    let read = |text: &str, limits: Limits| ObjectUrl::parse(text, &limits).map(drop);
    for text in ["corbaloc::h/K", "corbaname::h#a", &Ior::NIL.to_text().unwrap()] {
        let length = u32::try_from(text.len()).unwrap();
        let within =
            |reference_text| read(text, Limits { max_reference_text_length: reference_text, ..Limits::DEFAULT });
        assert_eq!((within(length + 1), within(length)), (Ok(()), Ok(())));
        assert_eq!(within(length - 1), Err(UrlError::TooLong));
    }
    for (text, parse) in [
        ("corbaloc::h/K", (|text, limits| Corbaloc::parse(text, limits).map(drop)) as fn(&str, &Limits) -> _),
        ("corbaname::h#a", |text, limits| Corbaname::parse(text, limits).map(drop)),
    ] {
        let length = u32::try_from(text.len()).unwrap();
        let within =
            |reference_text| parse(text, &Limits { max_reference_text_length: reference_text, ..Limits::DEFAULT });
        assert_eq!((within(length), within(length - 1)), (Ok(()), Err(UrlError::TooLong)));
    }
    let addresses = |profiles| read("corbaloc::a,:b,:c/K", Limits { max_profiles: profiles, ..Limits::DEFAULT });
    assert_eq!((addresses(4), addresses(3), addresses(2)), (Ok(()), Ok(()), Err(UrlError::TooLong)));
}

#[test]
fn corbaname_is_split_into_context_and_name() {
    let read = |text| Corbaname::parse(text, &Limits::DEFAULT).unwrap();
    let plain = read("corbaname::ns.example.com#shop/orders.obj");
    assert_eq!((plain.context.key.as_slice(), plain.name.as_deref()), (NAME_SERVICE_KEY, Some("shop/orders.obj")));
    assert_eq!(plain.to_string(), "corbaname:iiop:ns.example.com:2809/NameService#shop/orders.obj");
    assert_eq!(read("corbaname:rir:#a.b/c").context.initial_reference(), Some(NAME_SERVICE_KEY));
    let keyed = read("corbaname::1.2@h:9999/MyNS#x%3ay");
    assert_eq!((keyed.context.key.as_slice(), keyed.name.as_deref()), (&b"MyNS"[..], Some("x:y")));
    assert_eq!(read("corbaname::h#a%5c.b").name.as_deref(), Some("a\\.b"));
    assert_eq!((read("corbaname::h").name, read("corbaname::h#").name), (None, None));
}

#[test]
fn equivalence_compares_addresses_and_keys_only() {
    let make = |port, key: &[u8], components: &[TaggedComponent]| {
        let address = ProfileAddress::Inet { host: "h", port };
        let profile = TaggedProfile::encode(Version::GIOP_1_2, address, key, components).unwrap();
        Ior { type_id: String::new(), profiles: vec![profile] }
    };
    let one = make(1, b"k", &[]);
    let same = Ior { type_id: "IDL:X:1.0".into(), ..make(1, b"k", &[TaggedComponent::orb_type(1).unwrap()]) };
    let garbage = {
        let mut ior = one.clone();
        ior.profiles[0].data[3] = 0xaa;
        ior
    };
    for equivalent in [&same, &garbage] {
        assert!(one.is_equivalent(equivalent));
        assert_eq!(one.equivalence_hash(), equivalent.equivalence_hash());
    }
    for other in [make(2, b"k", &[]), make(1, b"l", &[]), Ior::NIL] {
        assert!(!one.is_equivalent(&other));
    }
    assert!(Ior::NIL.is_equivalent(&Ior::NIL));
    let unknown = Ior { type_id: String::new(), profiles: vec![TaggedProfile { tag: 7, data: vec![1] }] };
    assert!(unknown.is_equivalent(&unknown.clone()) && !unknown.is_equivalent(&one));
}

#[test]
fn url_errors_have_minor_codes_and_different_texts() {
    use crate::exception::SystemExceptionKind as Kind;
    let content = UrlError::from(CdrError::Truncated);
    assert_eq!((content.kind(), content.minor()), (CdrError::Truncated.kind(), CdrError::Truncated.minor()));
    assert_eq!(content.to_string(), CdrError::Truncated.to_string());
    let errors = [
        (UrlError::BadScheme, 7),
        (UrlError::BadAddress, 8),
        (UrlError::BadSchemeSpecificPart, 9),
        (UrlError::BadEscape, 10),
        (UrlError::TooLong, 10),
    ];
    let mut texts = vec![content.to_string()];
    for (error, minor) in errors {
        assert_eq!((error.kind(), error.minor() & 0xfff), (Kind::BadParam, minor));
        let text = error.to_string();
        assert!(!text.is_empty() && !texts.contains(&text), "{text:?}");
        texts.push(text);
    }
}

#[test]
fn endpoints_of_lanes_round_trip_in_every_form() {
    let endpoint = |port, priority| TaoEndpoint { address: "a".into(), port, priority };
    let unix = [endpoint(None, 1), endpoint(None, 2)];
    for written in [TaggedComponent::tao_endpoints(&unix).unwrap(), TaggedComponent::lane_endpoints(&unix).unwrap()] {
        for profile in
            [profile_tag::TAO_UIOP, profile_tag::UNIX, profile_tag::SHARED_MEMORY, profile_tag::OTHER_TRANSPORT]
        {
            assert_eq!(TaoEndpoint::parse_all(profile, &written.data, &Limits::DEFAULT).unwrap(), unix);
        }
    }
    let tags = [TaggedComponent::tao_endpoints(&unix), TaggedComponent::lane_endpoints(&unix)]
        .map(|component| component.unwrap().tag);
    assert_eq!(tags, [component_tag::TAO_ENDPOINTS, component_tag::LANE_ENDPOINTS]);
    for (count, fits) in [(1023, true), (1024, true), (1025, false)] {
        let written = TaggedComponent::tao_endpoints(&vec![endpoint(Some(1), 0); count]).unwrap();
        let read = TaoEndpoint::parse_all(profile_tag::IIOP, &written.data, &Limits::DEFAULT);
        assert_eq!(read.map(|read| read.len()), if fits { Ok(count) } else { Err(CdrError::LimitExceeded) });
    }
    let written = TaggedComponent::tao_endpoints(&vec![endpoint(Some(1), 0); 3]).unwrap();
    let at_most = |max_lane_endpoints| {
        let limits = Limits { max_lane_endpoints, ..Limits::DEFAULT };
        TaoEndpoint::parse_all(profile_tag::IIOP, &written.data, &limits).map(|read| read.len())
    };
    assert_eq!((at_most(3), at_most(2)), (Ok(3), Err(CdrError::LimitExceeded)));
}

#[test]
fn references_that_differ_in_one_field_are_not_equivalent() {
    let profile = |host, key: &[u8]| {
        TaggedProfile::encode(Version::GIOP_1_2, ProfileAddress::Inet { host, port: 1 }, key, &[]).unwrap()
    };
    let (one, two) = (profile("h", b"k"), profile("i", b"k"));
    let ior = |profiles: &[&TaggedProfile]| Ior {
        type_id: String::new(),
        profiles: profiles.iter().copied().cloned().collect(),
    };
    assert!(ior(&[&one, &two]).is_equivalent(&ior(&[&one, &two])));
    assert!(!ior(&[&one, &two]).is_equivalent(&ior(&[&two, &one])));
    assert!(!ior(&[&one]).is_equivalent(&ior(&[&one, &two])));
    let other_tag = TaggedProfile { tag: profile_tag::TAO_DIOP, data: one.data.clone() };
    assert!(!ior(&[&one]).is_equivalent(&ior(&[&other_tag])));
    let unknown = |tag, data: &[u8]| TaggedProfile { tag, data: data.to_vec() };
    assert!(ior(&[&unknown(7, b"x")]).is_equivalent(&ior(&[&unknown(7, b"x")])));
    assert!(!ior(&[&unknown(7, b"x")]).is_equivalent(&ior(&[&unknown(7, b"y")])));
    assert!(!ior(&[&unknown(7, b"x")]).is_equivalent(&ior(&[&unknown(8, b"x")])));
}

#[test]
fn equivalence_hash_is_fnv_1a() {
    let ior = Ior { type_id: String::new(), profiles: vec![TaggedProfile { tag: 0x0102_0304, data: b"ab".to_vec() }] };
    let fnv = [1, 2, 3, 4, b'a', b'b']
        .iter()
        .fold(0x811c_9dc5_u32, |hash, octet| (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193));
    assert_eq!((ior.equivalence_hash(), Ior::NIL.equivalence_hash()), (fnv, 0x811c_9dc5));
}

struct Unlimited;

impl MemoryAccount for Unlimited {
    fn reserve(&self, _: usize) -> Result<(), MemoryRefusal> {
        Ok(())
    }

    fn release(&self, _: usize) {}
}

#[test]
fn profile_is_charged_with_its_structure_and_its_data() {
    let charged = |lengths: &[usize]| {
        let profiles = lengths.iter().map(|length| TaggedProfile { tag: 9, data: vec![1; *length] }).collect();
        let mut e = Encoder::new();
        Ior { type_id: "IDL:X:1.0".into(), profiles }.encode(&mut e).unwrap();
        let (octets, meter) = (e.to_vec(), MemoryMeter::new(&Unlimited));
        Ior::decode(&mut Decoder::new(&octets, Endian::NATIVE).with_memory_meter(&meter)).unwrap();
        meter.charged_bytes()
    };
    let structure = charged(&[0]) - charged(&[]);
    assert!(structure >= size_of::<TaggedProfile>(), "{structure}");
    for lengths in [&[1][..], &[100], &[100, 0, 7]] {
        let data: usize = lengths.iter().sum();
        assert_eq!(charged(lengths) - charged(&[]), lengths.len() * structure + data, "{lengths:?}");
    }
}
