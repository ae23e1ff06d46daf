//! Imports go down only. The layers are those of `docs/architecture.md`; peers on one layer never import each other.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Layer of each top-level module.
const LAYERS: [(&str, u8); 13] = [
    ("error", 0),
    ("huge", 0),
    ("limits", 0),
    ("sync", 0),
    ("types", 0),
    ("format", 1),
    ("sampling", 1),
    ("store", 2),
    ("writer", 3),
    ("maintain", 3),
    ("reader", 3),
    ("dataset", 4),
    ("python", 5),
];

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Top-level module of a source file, and the modules its `crate::` paths name outside of tests.
fn imports(path: &Path, root: &Path) -> (String, Vec<String>) {
    let inside = path.strip_prefix(root).unwrap();
    let first = inside
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_str()
        .unwrap();
    let module = first.trim_end_matches(".rs").to_owned();
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]").next().unwrap();
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let named = lines.flat_map(|line| {
        line.split("crate::")
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    });
    let names = named.flat_map(|rest| match rest.strip_prefix('{') {
        Some(list) => list
            .split(',')
            .map(|part| part.trim().to_owned())
            .collect::<Vec<_>>(),
        None => vec![rest],
    });
    let head = |name: String| {
        name.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    (
        module,
        names.map(head).filter(|name| !name.is_empty()).collect(),
    )
}

#[test]
fn imports_go_down_only() {
    let layers: BTreeMap<&str, u8> = LAYERS.into();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let mut checked = 0;
    for file in files {
        let (module, names) = imports(&file, &root);
        if module == "lib" {
            continue;
        }
        let own = layers
            .get(module.as_str())
            .unwrap_or_else(|| panic!("{module} has no layer"));
        for name in names.iter().filter(|name| **name != module) {
            let Some(other) = layers.get(name.as_str()) else {
                panic!("{}: {name} has no layer", file.display())
            };
            // The floor is one layer whose parts may use each other.
            assert!(
                other < own || (*own == 0 && *other == 0),
                "{}: {module} imports {name}",
                file.display()
            );
            checked += 1;
        }
    }
    assert!(
        checked > 50,
        "only {checked} imports were found; the test reads the wrong place"
    );
}

#[test]
fn threads_and_locks_come_from_sync_only() {
    // Words of the standard library that `crate::sync` hands out, or that have no place here at all.
    const WORDS: [&str; 9] = [
        "Mutex",
        "RwLock",
        "Condvar",
        "Barrier",
        "mpsc",
        "OnceLock",
        "LazyLock",
        "TryLockError",
        "PoisonError",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let mut checked = 0;
    for file in files
        .iter()
        .filter(|file| !file.starts_with(root.join("sync")))
    {
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for line in code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
        {
            assert!(!line.contains("std::thread"), "{}: {line}", file.display());
            assert!(!line.contains("crossbeam"), "{}: {line}", file.display());
            let is_locked =
                line.contains("std::sync") && WORDS.iter().any(|word| line.contains(word));
            assert!(!is_locked, "{}: {line}", file.display());
            checked += usize::from(line.contains("crate::sync"));
        }
    }
    assert!(
        checked > 10,
        "only {checked} uses of crate::sync were found"
    );
}

#[test]
fn only_the_python_layer_names_pyo3_and_only_islands_are_unsafe() {
    const ISLANDS: [&str; 11] = [
        "huge.rs",
        "sync/crew.rs",
        "sync/process.rs",
        "sampling/avx2.rs",
        "sampling/chunks.rs",
        "store/map.rs",
        "store/prefetch.rs",
        "python/sample.rs",
        "python/arrow.rs",
        "python/buffer.rs",
        "python/payload.rs",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let inside = file
            .strip_prefix(&root)
            .unwrap()
            .to_string_lossy()
            .replace('\\', "/");
        assert!(
            inside.starts_with("python/") || !text.contains("pyo3::"),
            "{inside} names pyo3"
        );
        assert!(
            ISLANDS.contains(&inside.as_str()) || !text.contains("unsafe {"),
            "{inside} holds unsafe code"
        );
    }
}
