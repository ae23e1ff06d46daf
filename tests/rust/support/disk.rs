//! What a disk holds, what of it is durable, and what a loss of power may leave.
//!
//! The model is harsher than any real file system. Bytes of a file that were not synced may be lost, kept, cut short,
//! or read as zeros, garbage or a patchwork; every unsynced change of a name survives or not independently of every other,
//! so that a rename may leave both names or neither. Bytes or names once refused by a sync are never durable.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// What is on a disk: directories as None, files with their bytes, by path below the root.
pub type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// Tells trees apart without keeping them.
pub fn digest<'a>(tree: impl IntoIterator<Item = (&'a PathBuf, &'a Option<Vec<u8>>)>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    for (path, content) in tree {
        field(path.as_os_str().as_encoded_bytes());
        match content {
            None => field(b"directory"),
            Some(bytes) => {
                field(b"file");
                field(bytes);
            }
        }
    }
    hasher.finalize().into()
}

/// More combinations of losses than this are sampled, not enumerated.
const EXHAUSTIVE: usize = 1024;
const SAMPLES: usize = 200;
/// Ways in which the unsynced bytes of one file may survive; see [`surviving_bytes`].
const BYTE_FATES: usize = 6;
const SECTOR: usize = 512;

pub type Ino = usize;
pub const ROOT: Ino = 0;

#[derive(Debug, Clone)]
pub enum Op {
    Mkdir(Ino, OsString),
    Create(Ino, OsString),
    Write(Ino, Vec<u8>),
    Rename(Ino, OsString, Ino, OsString),
    Remove(Ino, OsString),
    Sync(Ino),
    FailedSync(Ino),
}

#[derive(Debug, Clone, Default)]
pub struct Node {
    pub is_dir: bool,
    /// Names as every process sees them.
    pub live: BTreeMap<OsString, Ino>,
    durable: BTreeMap<OsString, Ino>,
    /// Changes of names since the last sync.
    pending: Vec<(OsString, Option<Ino>)>,
    bytes: Vec<u8>,
    durable_bytes: usize,
    sync_failed: bool,
}

impl Node {
    fn set(&mut self, name: &OsString, ino: Option<Ino>) {
        match ino {
            Some(ino) => self.live.insert(name.clone(), ino),
            None => self.live.remove(name),
        };
        self.pending.push((name.clone(), ino));
    }

    fn fates(&self) -> Vec<usize> {
        let mut fates = vec![2; self.pending.len()];
        if self.bytes.len() > self.durable_bytes {
            fates.push(BYTE_FATES);
        }
        fates
    }
}

/// Names in a directory, bytes of a file.
type Content = (BTreeMap<OsString, Ino>, Vec<u8>);

#[derive(Debug, Clone)]
pub struct Nodes(pub Vec<Node>);

impl Nodes {
    pub fn new(tree: &Tree) -> Self {
        let mut nodes = Nodes(vec![Node {
            is_dir: true,
            ..Node::default()
        }]);
        for (path, content) in tree {
            let mut parent = ROOT;
            for name in path.parent().unwrap() {
                parent = nodes.0[parent].durable[name];
            }
            let ino = nodes.add(content.is_none());
            let name = path.file_name().unwrap().to_owned();
            let bytes = content.clone().unwrap_or_default();
            nodes.0[ino].durable_bytes = bytes.len();
            nodes.0[ino].bytes = bytes;
            nodes.0[parent].live.insert(name.clone(), ino);
            nodes.0[parent].durable.insert(name, ino);
        }
        nodes
    }

    fn add(&mut self, is_dir: bool) -> Ino {
        self.0.push(Node {
            is_dir,
            ..Node::default()
        });
        self.0.len() - 1
    }

    pub fn apply(&mut self, op: &Op) {
        match op {
            Op::Mkdir(dir, name) | Op::Create(dir, name) => {
                let ino = self.add(matches!(op, Op::Mkdir(..)));
                self.0[*dir].set(name, Some(ino));
            }
            Op::Write(file, bytes) => self.0[*file].bytes.extend_from_slice(bytes),
            Op::Rename(from_dir, from, to_dir, to) => {
                let moved = self.0[*from_dir].live[from];
                self.0[*to_dir].set(to, Some(moved));
                self.0[*from_dir].set(from, None);
            }
            Op::Remove(dir, name) => self.0[*dir].set(name, None),
            Op::Sync(ino) => {
                let node = &mut self.0[*ino];
                if !node.sync_failed {
                    node.durable_bytes = node.bytes.len();
                    node.durable = node.live.clone();
                    node.pending.clear();
                }
            }
            Op::FailedSync(ino) => self.0[*ino].sync_failed = true,
        }
    }

    /// Nodes that some combination of losses leaves reachable, and the number of fates of each of their pending changes.
    fn fates(&self) -> Vec<(Ino, Vec<usize>)> {
        let (mut seen, mut open) = (vec![ROOT], vec![ROOT]);
        while let Some(ino) = open.pop() {
            let node = &self.0[ino];
            let pending = node.pending.iter().filter_map(|(_, ino)| ino.as_ref());
            for child in node.durable.values().chain(pending) {
                if !seen.contains(child) {
                    seen.push(*child);
                    open.push(*child);
                }
            }
        }
        seen.into_iter()
            .map(|ino| (ino, self.0[ino].fates()))
            .filter(|(_, fates)| !fates.is_empty())
            .collect()
    }

    /// What the disk holds if every pending change meets the given fate, in the order of [`Nodes::fates`].
    fn survivors(&self, fates: &[(Ino, Vec<usize>)], choice: &[usize]) -> Tree {
        let mut left = choice;
        let mut chosen: BTreeMap<Ino, &[usize]> = BTreeMap::new();
        for (ino, of_node) in fates {
            let (own, rest) = left.split_at(of_node.len());
            chosen.insert(*ino, own);
            left = rest;
        }
        let mut tree = Tree::new();
        self.collect(ROOT, Path::new(""), &mut tree, &|ino, node| {
            let fates = chosen.get(&ino).copied().unwrap_or(&[]);
            let mut names = node.durable.clone();
            for ((name, change), fate) in node.pending.iter().zip(fates) {
                match change {
                    _ if *fate == 0 => {}
                    Some(ino) => drop(names.insert(name.clone(), *ino)),
                    None => drop(names.remove(name)),
                }
            }
            (names, surviving_bytes(node, fates.last().copied()))
        });
        tree
    }

    pub fn live(&self) -> Tree {
        let mut tree = Tree::new();
        self.collect(ROOT, Path::new(""), &mut tree, &|_, node| {
            (node.live.clone(), node.bytes.clone())
        });
        tree
    }

    /// Calls `visit` with every different tree that a loss of power now may leave: all of them if they are few, else the
    /// extremes and a seeded sample. An error of `visit` ends the walk.
    pub fn visit_survivors(
        &self,
        seed: u64,
        visit: &mut dyn FnMut(&Tree) -> Result<(), String>,
    ) -> Result<(), String> {
        let fates = self.fates();
        let radix: Vec<usize> = fates
            .iter()
            .flat_map(|(_, of_node)| of_node.clone())
            .collect();
        let mut seen = HashSet::new();
        let mut each = |choice: &[usize]| {
            let tree = self.survivors(&fates, choice);
            if seen.insert(digest(&tree)) {
                visit(&tree)
            } else {
                Ok(())
            }
        };
        let product = radix
            .iter()
            .try_fold(1_usize, |product, radix| product.checked_mul(*radix));
        if let Some(count) = product.filter(|product| *product <= EXHAUSTIVE) {
            for mut number in 0..count {
                let choice: Vec<usize> = radix
                    .iter()
                    .map(|radix| {
                        let digit = number % radix;
                        number /= radix;
                        digit
                    })
                    .collect();
                each(&choice)?;
            }
            return Ok(());
        }
        for base in [0, 1] {
            each(&vec![base; radix.len()])?;
            for (place, radix) in radix.iter().enumerate() {
                for fate in (0..*radix).filter(|fate| *fate != base) {
                    let mut choice = vec![base; place];
                    choice.push(fate);
                    choice.resize(fates.iter().map(|(_, fates)| fates.len()).sum(), base);
                    each(&choice)?;
                }
            }
        }
        let mut random = SplitMix(seed);
        for _ in 0..SAMPLES {
            let choice: Vec<usize> = radix.iter().map(|radix| random.below(*radix)).collect();
            each(&choice)?;
        }
        Ok(())
    }

    fn collect(
        &self,
        ino: Ino,
        path: &Path,
        tree: &mut Tree,
        content: &dyn Fn(Ino, &Node) -> Content,
    ) {
        let node = &self.0[ino];
        let (names, bytes) = content(ino, node);
        if path != Path::new("") {
            tree.insert(path.to_owned(), (!node.is_dir).then_some(bytes));
        }
        for (name, child) in names {
            self.collect(child, &path.join(name), tree, content);
        }
    }
}

fn surviving_bytes(node: &Node, fate: Option<usize>) -> Vec<u8> {
    let kept = node.durable_bytes;
    let mut bytes = node.bytes.clone();
    if bytes.len() == kept {
        return bytes;
    }
    let loose = bytes.len() - kept;
    match fate {
        Some(0) => bytes.truncate(kept),
        Some(1) | None => {}
        Some(2) => bytes.truncate(kept + loose / 2),
        Some(3) => bytes[kept..].fill(0),
        Some(4) => bytes[kept + loose / 2..].fill(0xA5),
        Some(_) => bytes[kept..]
            .chunks_mut(SECTOR)
            .step_by(2)
            .for_each(|sector| sector.fill(0)),
    }
    bytes
}

/// A small seeded generator; the same samples on every run.
pub struct SplitMix(u64);

impl SplitMix {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}
