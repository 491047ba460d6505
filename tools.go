package tools
import (
_ "github.com/miekg/dns"
_ "github.com/spf13/viper"
_ "github.com/spf13/cobra"
_ "github.com/go-viper/mapstructure/v2"
_ "github.com/prometheus/client_golang/prometheus"
_ "golang.org/x/sys/unix"
_ "pgregory.net/rapid"
_ "github.com/cockroachdb/datadriven"
_ "github.com/google/go-cmp/cmp"
_ "gopkg.in/yaml.v3"
_ "github.com/google/renameio/v2"
_ "go.uber.org/goleak"
)
