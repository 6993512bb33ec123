//! Unix sockets: a file that comes and goes with the server.

use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use socket2::{Domain, SockAddr, Socket, Type};

use crate::listen::BACKLOG;

/// Who may connect: the owner and the group.
const MODE: u32 = 0o660;

/// The file of a socket. Removed when this is dropped, unless it is another's by then.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    inode: u64,
}

/// Listens at this path. A file that a dead server has left is replaced; one of a server that lives
/// is [`io::ErrorKind::AddrInUse`], and anything but a socket [`io::ErrorKind::AlreadyExists`].
pub(crate) fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile { path: path.to_owned(), inode: fs::symlink_metadata(path)?.ino() };
    // Nobody can connect before it listens, so nobody sees other permissions.
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((socket.into(), file))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        // Nobody listens any more.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|file| file.ino() == self.inode);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_file_comes_and_goes() {
        let directory = std::env::temp_dir().join(format!("sandtide-unix-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("s");
        let (listener, file) = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // A server that died has not removed its file.
        drop(listener);
        std::mem::forget(file);
        let (_listener, file) = bind(&path).unwrap();
        drop(file);
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_dir_all(directory).unwrap();
    }
}
