//! A clock of the thread that a test moves on, so that nobody waits for the times of the client.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

thread_local! {
    static AHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

pub fn now() -> Instant {
    Instant::now() + AHEAD.get()
}

pub fn skip(time: Duration) {
    AHEAD.set(AHEAD.get() + time);
}
