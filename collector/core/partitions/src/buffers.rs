//! The bytes of each partition: those in memory, and the positions of those that were moved to a file.
//!
//! All partitions share one unnamed file, which is written from front to back whenever memory has no more room. Buffers
//! keep their memory when their bytes are moved, so that the kernel has to provide each page only once.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock;

/// A file for what does not fit in memory; created when first needed, deleted when the process ends.
#[derive(Debug)]
pub struct Spill {
    folder: PathBuf,
    written: Mutex<Option<SpillFile>>,
}

#[derive(Debug)]
struct SpillFile {
    file: File,
    len: u64,
}

/// Bytes of the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u64,
    len: usize,
}

impl Spill {
    /// A spill whose file will be in `folder`.
    pub fn new(folder: PathBuf) -> Self {
        let written = Mutex::default();
        Self { folder, written }
    }

    /// Whether anything was written.
    pub fn is_used(&self) -> bool {
        lock(&self.written).is_some()
    }

    fn write(&self, bytes: &[u8]) -> io::Result<Place> {
        let mut written = lock(&self.written);
        if written.is_none() {
            let file = nameless_file(&self.folder)?;
            *written = Some(SpillFile { file, len: 0 });
        }
        let SpillFile { file, len } = written.as_mut().expect("it was made");
        file.write_all_at(bytes, *len)?;
        let place = Place {
            start: *len,
            len: bytes.len(),
        };
        *len += bytes.len() as u64;
        Ok(place)
    }

    fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let written = lock(&self.written);
        let SpillFile { file, .. } = written.as_ref().expect("what has a place was written");
        let mut bytes = vec![0; place.len];
        file.read_exact_at(&mut bytes, place.start)?;
        Ok(bytes)
    }
}

/// A file that is unlinked right after it was created, so that it cannot remain.
fn nameless_file(folder: &Path) -> io::Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("twintap-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// Smallest and largest chunk in bytes. A chunk is allocated once, so that growing copies nothing. The more chunks
/// there are, the larger is the next one; the memory of large ones returns to the system as soon as they are read.
const MIN_CHUNK_LEN: usize = 1 << 16;
const MAX_CHUNK_LEN: usize = 1 << 20;

/// A growing list of byte strings, of which the earlier ones may be in the file. No item is in two chunks.
#[derive(Debug, Default)]
pub struct Buffer {
    places: Vec<Place>,
    chunks: Vec<Vec<u8>>,
}

impl Buffer {
    /// Add an item.
    #[inline(always)]
    pub fn push(&mut self, item: &[u8]) {
        self.room(item.len()).extend_from_slice(item);
    }

    /// The chunk to which an item of `len` bytes is to be appended.
    #[inline(always)]
    pub fn room(&mut self, len: usize) -> &mut Vec<u8> {
        let is_full = self.chunks.last().is_none_or(|last| last.capacity() - last.len() < len);
        if is_full {
            self.add_chunk(len);
        }
        self.chunks.last_mut().expect("one was added")
    }

    #[cold]
    fn add_chunk(&mut self, len: usize) {
        let held = self.chunks.iter().map(Vec::len).sum::<usize>();
        let chunk_len = held.clamp(MIN_CHUNK_LEN, MAX_CHUNK_LEN).max(len);
        self.chunks.push(Vec::with_capacity(chunk_len));
    }

    /// Bytes of all items.
    pub fn bytes_count(&self) -> usize {
        let moved: usize = self.places.iter().map(|place| place.len).sum();
        moved + self.chunks.iter().map(Vec::len).sum::<usize>()
    }

    /// Move what is in memory to the file.
    ///
    /// # Errors
    /// The operating system fails to write or read the file.
    pub fn move_to(&mut self, spill: &Spill) -> io::Result<()> {
        for chunk in self.chunks.drain(..) {
            self.places.push(spill.write(&chunk)?);
        }
        Ok(())
    }

    /// Call `see` with each chunk in order.
    ///
    /// # Errors
    /// The operating system fails to write or read the file.
    pub fn visit(&self, spill: &Spill, mut see: impl FnMut(&[u8])) -> io::Result<()> {
        for &place in &self.places {
            see(&spill.read(place)?);
        }
        self.chunks.iter().for_each(|chunk| see(chunk));
        Ok(())
    }

    /// Take all chunks; the buffer is empty afterwards.
    ///
    /// # Errors
    /// The operating system fails to write or read the file.
    pub fn take(&mut self, spill: &Spill) -> io::Result<Vec<Vec<u8>>> {
        let Self { places, chunks } = std::mem::take(self);
        let read = places.into_iter().map(|place| spill.read(place));
        read.chain(chunks.into_iter().map(Ok)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "files are not Miri's")]
    fn what_went_to_the_file_comes_first_and_nothing_is_left_of_it() {
        let folder = std::env::temp_dir().join(format!("twintap-buffers-{}", std::process::id()));
        fs::create_dir(&folder).expect("it is ours");
        let spill = Spill::new(folder.clone());
        let [mut one, mut other] = [Buffer::default(), Buffer::default()];
        for part in 1..=3 {
            (0..part).for_each(|_| one.push(&[part]));
            other.push(&[part, 9]);
            one.move_to(&spill).expect("there is room");
            other.move_to(&spill).expect("there is room");
        }
        one.push(&[4]);
        assert_eq!((one.bytes_count(), other.bytes_count()), (7, 6));
        let mut seen = Vec::new();
        one.visit(&spill, |chunk| seen.extend_from_slice(chunk))
            .expect("it can be read");
        assert_eq!(seen, [1, 2, 2, 3, 3, 3, 4]);
        assert_eq!(
            one.take(&spill).expect("it can be read").concat(),
            [1, 2, 2, 3, 3, 3, 4]
        );
        assert!(one.take(&spill).expect("it can be read").is_empty());
        assert_eq!(other.take(&spill).expect("it can be read"), [[1, 9], [2, 9], [3, 9]]);
        fs::remove_dir(&folder).expect("it is empty");
        assert!(Spill::new(folder).write(&[1]).is_err());
    }

    #[test]
    fn no_item_is_in_two_chunks() {
        let mut buffer = Buffer::default();
        let items = [vec![1; MIN_CHUNK_LEN - 1], vec![2; 2], vec![3; MIN_CHUNK_LEN + 5]];
        items.iter().for_each(|item| buffer.push(item));
        let chunks = buffer.take(&Spill::new(PathBuf::new())).expect("all is in memory");
        assert_eq!(chunks, items);
    }
}
