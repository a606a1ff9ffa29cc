//! Tests of messages: limits and hostile payloads. What round trips is tested in `tests/net/messages.rs`.

use super::*;
use crate::frame::MAX_PAYLOAD_LEN;

fn raw(command: Command, payload: Vec<u8>) -> RawMessage {
    RawMessage { command, payload }
}

#[test]
fn features_have_bounded_names_and_data() {
    let feature = |payload: Vec<u8>| Message::decode(raw(command::FEATURE, payload)).unwrap();
    let of = |id: usize, data: usize| {
        let message = Message::Feature { id: vec![b'a'; id], data: vec![1; data] };
        (feature(message.encode().payload), message)
    };
    for (id, data) in [(4, 0), (80, 512), (17, 0)] {
        let (back, message) = of(id, data);
        assert_eq!(back, message);
    }
    let ignored = Message::Ignored(command::FEATURE);
    for (id, data) in [(3, 0), (81, 0), (4, 513), (0, 0)] {
        assert_eq!(of(id, data).0, ignored, "{id} {data}");
    }
    let good = Message::Feature { id: SPENT_COINS_FEATURE.to_vec(), data: vec![] }.encode().payload;
    assert_eq!(good[0] as usize, SPENT_COINS_FEATURE.len());
    for bad in [&good[..good.len() - 1], &[&good[..], &[0]].concat(), &[0xfd, 17, 0], &[]] {
        assert_eq!(feature(bad.to_vec()), ignored, "missing or additional bytes, or no minimal length");
    }
}

#[test]
fn questions_for_spent_coins_have_the_bytes_of_the_draft_and_of_its_reference_code() {
    let block = BlockHash([9; 32]);
    let payload = |form| Message::GetSpentCoins { form, block }.encode();
    let hash_and_cutoff = [&[9; 32][..], &[0; 4]].concat();
    let draft = payload(SpentCoinsForm::Draft);
    assert_eq!((draft.command, draft.payload), (command::GETBSPENT, [&[1][..], &hash_and_cutoff].concat()));
    let reference = payload(SpentCoinsForm::Reference);
    assert_eq!((reference.command, reference.payload), (command::GETBUNDO, hash_and_cutoff));
}

#[test]
fn lists_have_the_limits_of_core() {
    let limits = [
        (command::INV, MAX_INVENTORY, 36),
        (command::GETDATA, MAX_INVENTORY, 36),
        (command::NOTFOUND, MAX_INVENTORY, 36),
        (command::HEADERS, MAX_HEADERS, 81),
        (command::ADDR, MAX_ADDRESSES, 30),
    ];
    for (command, limit, entry_len) in limits {
        for count in [limit, limit + 1] {
            let mut payload = Vec::new();
            write_compact_size(&mut payload, count as u64);
            payload.resize(payload.len() + count * entry_len, 0);
            assert!(payload.len() <= MAX_PAYLOAD_LEN);
            let result = Message::decode(raw(command, payload));
            if count > limit {
                assert_eq!(result, Err(MessageError::TooMany { command, count, limit }));
            } else {
                assert!(result.is_ok(), "{command}: {result:?}");
            }
        }
    }
    let mut locator = vec![0; 4];
    write_compact_size(&mut locator, MAX_LOCATOR as u64 + 1);
    assert!(matches!(Message::decode(raw(command::GETHEADERS, locator)), Err(MessageError::TooMany { .. })));
}

#[test]
fn a_large_count_in_a_short_message_allocates_nothing_large() {
    for command in [command::INV, command::HEADERS, command::ADDRV2] {
        // 33 million, then 1,000, both without any entry behind them.
        for payload in [vec![0xfe, 0, 0, 0, 2], vec![0xfd, 0xe8, 3]] {
            assert!(Message::decode(raw(command, payload)).is_err(), "{command}");
        }
    }
}

#[test]
fn a_user_agent_is_sanitised_and_bounded() {
    assert_eq!(sanitise_user_agent(b"/Satoshi:31.0.0(a; b)/\x1b[31m\n\xff\"<"), "/Satoshi:31.0.0(a; b)/31m");
    let mut version = Version {
        version: PROTOCOL_VERSION,
        services: Services::FULL,
        time: 0,
        nonce: 1,
        user_agent: "a".repeat(256),
        height: 0,
        relay: false,
    };
    let message = Message::Version(version.clone());
    assert_eq!(Message::decode(message.encode()), Ok(message));
    version.user_agent.push('a');
    let error = Message::decode(Message::Version(version).encode()).unwrap_err();
    assert_eq!(error.to_string(), "version with a text of 257 bytes, above the limit of 256");
}

#[test]
fn the_end_of_a_version_may_be_missing() {
    let mut payload = Vec::new();
    payload.extend_from_slice(&31_800_i32.to_le_bytes());
    payload.extend_from_slice(&9_u64.to_le_bytes());
    payload.extend_from_slice(&[0; 8 + 26]);
    let Ok(Message::Version(version)) = Message::decode(raw(command::VERSION, payload)) else { panic!() };
    assert_eq!((version.version, version.services, version.nonce), (31_800, Services::FULL, 0));
    assert_eq!((version.height, version.relay), (-1, true));
}

#[test]
fn unknown_messages_are_ignored() {
    for name in ["feature", "feefilter", "sendcmpct", "alert", "newmessage"] {
        let command = Command::new(name);
        assert_eq!(Message::decode(raw(command, vec![1, 2, 3])), Ok(Message::Ignored(command)));
    }
}
