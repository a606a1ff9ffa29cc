//! Links, mounts, leftovers, owners, modes and special files: damage, or what users do.

use super::{Description, name};
use crate::{prelude::*, scene::NODE_USER};
use std::os::unix::fs::{PermissionsExt, lchown, symlink};

/// Moves a folder or a file out of the datadir and replaces it by a link. Returns where it is now, and the
/// link's target; `None` if it cannot be moved.
fn move_behind_link(scene: &Scene<'_>, path: &Path, name: &str) -> Res<Option<[PathBuf; 2]>> {
    let elsewhere = scene.live.join("elsewhere");
    fs::create_dir_all(&elsewhere)?;
    let to = elsewhere.join(name);
    if to.exists() || fs::rename(path, &to).is_err() {
        return Ok(None);
    }
    // The folder may be behind a link itself.
    let parent = fs::canonicalize(path.parent().unwrap_or(path))?;
    let depth = parent.strip_prefix(&scene.live)?.components().count();
    let target: PathBuf = std::iter::repeat_n("..", depth).collect::<PathBuf>().join("elsewhere").join(name);
    symlink(&target, path)?;
    Ok(Some([to, target]))
}

pub fn link(scene: &Scene<'_>, dir: &Path, name: &str) -> Description {
    if !is_dir(dir) {
        return Ok(None);
    }
    let moved = move_behind_link(scene, dir, name)?;
    Ok(moved.map(|[_, target]| format!("is a link to {}", target.display())))
}

/// Replaces an undo file by a link, which leads nowhere in one case of three.
pub fn rev_link(scene: &mut Scene<'_>) -> Description {
    let Some(path) = scene.any("rev") else { return Ok(None) };
    let Some([to, target]) = move_behind_link(scene, &path, &name(&path))? else { return Ok(None) };
    let dangling = scene.rng.chance(1, 3);
    if dangling {
        fs::remove_file(to)?;
    }
    let there = if dangling { ", where nothing is" } else { "" };
    Ok(Some(format!("{} is a link to {}{there}", name(&path), target.display())))
}

pub fn link_dangling(scene: &mut Scene<'_>) -> Description {
    let places = [scene.paths.chainstate_dir(), scene.paths.index_dir(), scene.blocks()];
    let Some(dir) = scene.pick_dir(&places) else { return Ok(None) };
    fs::remove_dir_all(&dir)?;
    symlink("nowhere/at/all", &dir)?;
    Ok(Some(format!("{} leads nowhere", dir.display())))
}

pub fn mount(scene: &mut Scene<'_>, dir: &Path) -> Description {
    Ok(scene.mount(dir)?.then(|| "a file system of its own".to_owned()))
}

/// Returns a random folder of those in which new databases are built.
fn building(scene: &mut Scene<'_>) -> PathBuf {
    let (chainstate, index) =
        (scene.net().join("chainstate.peregrine"), scene.blocks().join("index.peregrine"));
    if scene.rng.chance(2, 3) { chainstate } else { index }
}

pub fn leftover_file(scene: &mut Scene<'_>) -> Description {
    let path = building(scene);
    scene.add_note(&path)
}

pub fn leftover_folder_of_user(scene: &mut Scene<'_>) -> Description {
    let path = building(scene).join("letters/to-a-friend.txt");
    scene.add_note(&path)
}

/// Adds what a killed run leaves, sometimes with a note of the user in it.
pub fn leftover_with_notes(scene: &mut Scene<'_>) -> Description {
    let dir = building(scene);
    if fs::symlink_metadata(&dir).is_ok() || !is_dir(&scene.paths.chainstate_dir()) {
        return Ok(None);
    }
    testkit::node::copy_all(&scene.paths.chainstate_dir(), &dir)?;
    let _ = fs::remove_file(dir.join("CURRENT"));
    // A directory without a mark would be a foreign one.
    let mark = dir.join("peregrine.mark");
    fs::write(&mark, b"PGRN-NEW0123456789abcdef")?;
    fs::set_permissions(&mark, Permissions::from_mode(0o600))?;
    if let Some(user) = scene.node_user {
        lchown(&mark, Some(user), Some(user))?;
    }
    if scene.rng.chance(1, 2) {
        return Ok(Some(format!("{} as a killed run leaves it", dir.display())));
    }
    scene.add_note(&dir.join("why-this-folder-is-here.txt"))
}

pub fn notes_in_database(scene: &mut Scene<'_>) -> Description {
    let dirs = [scene.paths.chainstate_dir(), scene.paths.index_dir()];
    let Some(dir) = scene.pick_dir(&dirs) else { return Ok(None) };
    scene.add_note(&dir.join("notes.txt"))
}

/// Makes Peregrine run as another user than root, because modes do not restrict root.
fn as_node_user(scene: &mut Scene<'_>) -> Res<()> {
    if scene.root && scene.node_user.is_none() {
        give(scene, NODE_USER, true)?;
    }
    scene.peregrine_user = scene.node_user;
    Ok(())
}

pub fn read_only(scene: &mut Scene<'_>) -> Description {
    as_node_user(scene)?;
    let dirs = [scene.net(), scene.blocks(), scene.paths.chainstate_dir(), scene.paths.index_dir()];
    let Some(dir) = scene.pick_dir(&dirs) else { return Ok(None) };
    fs::set_permissions(&dir, Permissions::from_mode(0o555))?;
    Ok(Some(format!("{} is read-only", dir.display())))
}

pub fn unreadable(scene: &mut Scene<'_>) -> Description {
    as_node_user(scene)?;
    let mut paths = [scene.numbered("blk"), scene.numbered("rev")].concat();
    paths.extend(scene.database_files(&scene.paths.chainstate_dir()));
    paths.extend(scene.database_files(&scene.paths.index_dir()));
    paths.extend([scene.blocks().join("xor.dat"), scene.net().join(".lock")]);
    paths.retain(|path| is_file(path));
    let Some(path) = scene.pick(&paths) else { return Ok(None) };
    fs::set_permissions(&path, Permissions::from_mode(if scene.rng.chance(1, 2) { 0 } else { 0o400 }))?;
    Ok(Some(format!("{} has mode {:o}", path.display(), fs::metadata(&path)?.permissions().mode() & 0o777)))
}

/// Gives all files to a user, with Core's modes.
fn give(scene: &mut Scene<'_>, user: u32, for_node: bool) -> Res<()> {
    for (name, seen) in look(&scene.live)? {
        let path = scene.live.join(name);
        lchown(&path, Some(user), Some(user))?;
        let mode = match seen.what {
            crate::tree::What::Dir => 0o700,
            crate::tree::What::File(..) => 0o600,
            _ => continue,
        };
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    lchown(&scene.live, Some(user), Some(user))?;
    if for_node {
        scene.node_user = Some(user);
    }
    Ok(())
}

/// Gives all files to a user of the node. Peregrine runs as root or as that user.
pub fn owned_by_node_user(scene: &mut Scene<'_>) -> Description {
    if !scene.root || scene.node_user.is_some() {
        return Ok(None);
    }
    give(scene, NODE_USER, true)?;
    scene.peregrine_user = scene.rng.chance(1, 4).then_some(NODE_USER);
    Ok(Some(format!("all belongs to user {NODE_USER}")))
}

/// Makes Peregrine run as a user that may read and may not write.
pub fn owned_by_root(scene: &mut Scene<'_>) -> Description {
    if !scene.root || scene.node_user.is_some() {
        return Ok(None);
    }
    let done = Command::new("chmod").args(["-R", "u=rwX,go=rX"]).arg(&scene.live).output()?;
    scene.peregrine_user = Some(NODE_USER);
    Ok(done.status.success().then(|| format!("user {NODE_USER} runs it over root's files")))
}

pub fn lock_missing(scene: &mut Scene<'_>) -> Description {
    let places = [scene.net().join(".lock"), scene.blocks().join(".lock")];
    let locks = [scene.paths.chainstate_dir().join("LOCK"), scene.paths.index_dir().join("LOCK")];
    let mut description = String::new();
    for path in places.iter().chain(&locks).filter(|path| is_file(path)) {
        fs::remove_file(path)?;
        description += &format!("{} ", path.display());
    }
    Ok((!description.is_empty()).then(|| format!("{description}deleted")))
}

/// Returns a random file that a run reads.
fn any_file(scene: &mut Scene<'_>) -> Option<PathBuf> {
    let mut paths = [scene.numbered("blk"), scene.numbered("rev")].concat();
    paths.extend(scene.database_files(&scene.paths.index_dir()));
    paths.extend([scene.blocks().join("xor.dat"), scene.paths.chainstate_dir().join("CURRENT")]);
    paths.extend([scene.net().join(".lock"), scene.paths.index_dir().join("LOCK")]);
    paths.retain(|path| is_file(path));
    scene.pick(&paths)
}

pub fn fifo(scene: &mut Scene<'_>) -> Description {
    let path = if scene.rng.chance(1, 4) {
        let path = scene.live.join("hints-fifo");
        scene.hints = Some(path.clone());
        path
    } else {
        let Some(path) = any_file(scene) else { return Ok(None) };
        fs::remove_file(&path)?;
        path
    };
    let done = Command::new("mkfifo").arg(&path).output()?;
    scene.fifo = true;
    Ok(done.status.success().then(|| format!("{} is a FIFO", path.display())))
}

pub fn folder_for_file(scene: &mut Scene<'_>) -> Description {
    let Some(path) = any_file(scene) else { return Ok(None) };
    fs::remove_file(&path)?;
    fs::create_dir(&path)?;
    Ok(Some(format!("{} is a folder", path.display())))
}
