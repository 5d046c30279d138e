package npm_test

import (
	"crypto/sha512"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/example/full/internal/browser/npm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnotherPackageIsRefused(t *testing.T) {
	t.Parallel()
	packed := []byte("not what the registry has")
	require.ErrorContains(t, npm.Axe.Verify(packed), npm.Axe.Integrity)
	sum := sha512.Sum512(packed)
	require.NoError(t, npm.Library{Integrity: "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}.Verify(packed))
}
