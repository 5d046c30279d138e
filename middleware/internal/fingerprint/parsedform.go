package fingerprint

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"

	"github.com/httplatch/httplatch/internal/bodybuf"
	"github.com/httplatch/httplatch/middleware/internal/lenprefix"
)

// parsedFormSum hashes a form that outer middleware has parsed, as the handler sees it. Its error
// matches bodybuf.ErrConsumed.
func parsedFormSum(r *http.Request) (sum [sha256.Size]byte, err error) {
	all := lenprefix.Append(nil, r.PostForm.Encode())
	if form := r.MultipartForm; form != nil {
		all = lenprefix.Append(all, url.Values(form.Value).Encode())
		content := sha256.New()
		for _, field := range slices.Sorted(maps.Keys(form.File)) {
			for _, file := range form.File[field] {
				if err := hashFile(content, file); err != nil {
					return sum, fmt.Errorf("%w: a file of the form that was parsed cannot be read: %w", bodybuf.ErrConsumed, err)
				}
				all = lenprefix.Append(lenprefix.Append(all, field), file.Filename)
				all = content.Sum(lenprefix.Append(all, url.Values(file.Header).Encode()))
			}
		}
	}
	return sha256.Sum256(all), nil
}

// hashFile makes h the hash of the content of file, which may be on disk.
func hashFile(h hash.Hash, file *multipart.FileHeader) error {
	content, err := file.Open()
	if err != nil {
		return err
	}
	h.Reset()
	_, err = io.Copy(h, content)
	// Nothing was written, so an error of Close loses nothing.
	_ = content.Close()
	return err
}
