//! A message of each kind, as the fuzz target has them: it is decoded to what it was, and not at all if it
//! ends early. Any bytes are tried by the fuzz targets (`testkit::fuzz`).

use peregrine_net::{
    frame::{Command, RawMessage},
    message::Message,
};
use testkit::fuzz::TARGETS;

fn messages() -> impl Iterator<Item = RawMessage> {
    let target = TARGETS.iter().find(|target| target.name == "net_message").unwrap();
    (target.seeds)().into_iter().map(|bytes| {
        let (command, payload) = bytes.split_first_chunk().unwrap();
        RawMessage { command: Command::from_bytes(*command).unwrap(), payload: payload.to_vec() }
    })
}

#[test]
fn messages_round_trip_and_are_errors_if_they_end_early() {
    let mut checked = 0;
    for whole in messages() {
        let message = Message::decode(whole.clone()).unwrap();
        assert_eq!(message.encode(), whole);
        // Blocks and coins stay bytes, and a malformed feature is ignored.
        if matches!(
            message,
            Message::Version(_)
                | Message::Block(_)
                | Message::SpentCoins { .. }
                | Message::Feature { .. }
                | Message::Ignored(_)
        ) {
            continue;
        }
        for len in whole.payload.len().saturating_sub(9)..whole.payload.len() {
            let cut = RawMessage { payload: whole.payload[..len].to_vec(), ..whole.clone() };
            assert!(Message::decode(cut).is_err(), "{message:?} of {len} bytes");
            checked += 1;
        }
    }
    assert!(checked > 70, "{checked}");
}
