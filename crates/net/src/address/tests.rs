//! Tests of addresses: texts, encodings, groups.

use super::*;

fn host(text: &str) -> Host {
    text.parse().unwrap()
}

const ONION: &str = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion";

#[test]
fn texts_and_encodings_round_trip() {
    let i2p = "ukeu3k5oycgaauneqgtnvselmt4yemvoilkln7jpvamvfx7dnkdq.b32.i2p";
    for text in ["1.2.3.4", "2a01:4f8::1", "fc00:1::2", ONION, i2p] {
        assert_eq!(host(text).to_string(), text);
        let upper = text.to_uppercase().replace("ONION", "onion").replace("B32.I2P", "b32.i2p");
        assert_eq!(host(&upper), host(text));
        let address = PeerAddress { host: host(text), port: 8333 };
        let mut v2 = Vec::new();
        address.write_v2(&mut v2);
        assert_eq!(PeerAddress::read_v2(&mut Reader::new(&v2)), Ok(Some(address)));
        let ip = match address.host {
            Host::V4(ip) => ip.to_ipv6_mapped(),
            Host::V6(ip) => ip,
            Host::Onion(_) | Host::I2p(_) | Host::Cjdns(_) => continue,
        };
        let v1 = [&ip.octets()[..], &address.port.to_be_bytes()].concat();
        assert_eq!(PeerAddress::read_v1(&mut Reader::new(&v1)), Ok(address));
    }
    assert_eq!(host("[::1]"), Host::V6(Ipv6Addr::LOCALHOST));
    assert_eq!(host("::ffff:1.2.3.4"), host("1.2.3.4"));
    assert_eq!(PeerAddress { host: host("2a01::1"), port: 8333 }.to_string(), "[2a01::1]:8333");
    let damaged = ONION.replace("pg6", "pg7");
    for text in ["", "example.com", ".onion", "aaaa.onion", damaged.as_str(), "a.b32.i2p", "1.2.3"] {
        assert_eq!(text.parse::<Host>(), Err(ParseHostError), "{text}");
    }
}

/// The bytes of Core's `net_tests.cpp`, `cnetaddr_unserialize_v2`.
#[test]
fn addrv2_is_read_as_core_reads_it() {
    let read = |bytes: &[u8]| {
        let with_port = [bytes, &[0x20, 0x8d]].concat();
        PeerAddress::read_v2(&mut Reader::new(&with_port))
            .map(|found| found.map(|found| (found.host.to_string(), found.port)))
    };
    let found = |text: &str| Ok(Some((text.to_owned(), 8333)));
    assert_eq!(read(&[1, 4, 1, 2, 3, 4]), found("1.2.3.4"));
    assert_eq!(read(&[1, 5, 1, 2, 3, 4, 5]), Err(AddressError::Length { kind: 1, len: 5 }));
    let v6: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
    assert_eq!(read(&[&[2, 16], &v6[..]].concat()), found("102:304:506:708:90a:b0c:d0e:f10"));
    let mapped = Ipv4Addr::new(1, 2, 3, 4).to_ipv6_mapped().octets();
    assert_eq!(read(&[&[2, 16], &mapped[..]].concat()), Ok(None));
    let mut old_onion = v6;
    old_onion[..6].copy_from_slice(&[0xfd, 0x87, 0xd8, 0x7e, 0xeb, 0x43]);
    assert_eq!(read(&[&[2, 16], &old_onion[..]].concat()), Ok(None));
    let onion_v2 = [&[3, 10], &[7; 10][..]].concat();
    assert_eq!(read(&onion_v2), Ok(None), "onion version 2 is a network of the past");
    let Host::Onion(key) = host(ONION) else { unreachable!() };
    assert_eq!(read(&[&[4, 32], &key[..]].concat()), found(ONION));
    assert_eq!(read(&[&[4, 31], &key[1..]].concat()), Err(AddressError::Length { kind: 4, len: 31 }));
    assert_eq!(read(&[&[6, 16, 0xfc], &v6[1..]].concat()), found("fc02:304:506:708:90a:b0c:d0e:f10"));
    assert_eq!(read(&[&[6, 16, 0xfd], &v6[1..]].concat()), Ok(None));
    assert_eq!(read(&[&[0xaa, 4], &[1; 4][..]].concat()), Ok(None), "unknown networks are skipped");
    assert_eq!(read(&[0xaa, 0]), Ok(None));
    let long = [&[0xaa, 0xfd, 0x01, 0x02], &[1; 513][..]].concat();
    assert_eq!(read(&long), Err(AddressError::Length { kind: 0xaa, len: 513 }));
    assert!(matches!(read(&[1, 4, 1]), Err(AddressError::Wire(_))));
}

#[test]
fn groups_are_those_that_one_operator_has() {
    let same = |a: &str, b: &str| host(a).group() == host(b).group();
    assert!(same("1.2.3.4", "1.2.200.4") && !same("1.2.3.4", "1.3.3.4"));
    assert!(same("2a01:4f8::1", "2a01:4f8:ffff::1") && !same("2a01:4f8::1", "2a01:4f9::1"));
    assert!(same("2002:102:304::1", "1.2.9.9"), "6to4");
    assert!(same("2001:0:1:2:3:4:fefd:fcfb", "1.2.3.4"), "Teredo");
    assert!(same("64:ff9b::102:304", "1.2.3.4"), "translated");
    assert!(same("fc12:3::1", "fc1f:4::1") && !same("fc12::1", "fc22::1"));
    assert_ne!(Host::Onion([0x12; 32]).group(), Host::I2p([0x12; 32]).group());
    assert_eq!(Host::Onion([0x12; 32]).group(), Host::Onion([0x1f; 32]).group());
}

#[test]
fn only_public_addresses_are_routable() {
    for text in ["8.8.8.8", "100.63.0.1", "172.32.0.1", "2a01:4f8::1", "fc00::1", ONION] {
        assert!(host(text).is_routable(), "{text}");
    }
    let others = "0.1.2.3 10.0.0.1 100.64.0.1 127.0.0.1 169.254.1.1 172.16.0.1 192.0.2.1 192.168.1.1 \
        198.18.0.1 224.0.0.1 255.255.255.255 :: ::1 fd00::1 fe80::1 2001:db8::1 2001:10::1 ff02::1 \
        2002:a00:1::1";
    for text in others.split(' ') {
        assert!(!host(text).is_routable(), "{text}");
    }
}
