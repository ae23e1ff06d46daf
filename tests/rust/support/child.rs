//! Tests that need a process of their own: this test binary, started again to run one function.

use std::process::{Command, Stdio};

const ROLE: &str = "DATASET_RT_TEST_ROLE";

/// Runs test `name` of this binary in a new process, with `role`; its failure is the caller's.
pub fn run(name: &str, role: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{role}: {said}{complained}");
    assert!(said.contains("1 passed"), "{name} is no test: {said}");
}

/// The role of this process, if it was started by [`run`].
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}
