package prbot

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
)

// An Event is what a workflow run is about, as the runner of GitHub Actions, or of
// Gitea's or Forgejo's, tells it in the environment.
type Event struct {
	API        *url.URL // of the REST API
	Repository string   // "owner/name": where the pull request is, or will be
	Number     int      // of the pull request; 0 if the event is about none
	Run        *Run     // the workflow run that this one follows (workflow_run), or nil
	Token      string   // "" if there is none
	Server     string   // address of the forge, where its repositories are; "" if unknown
	Gitea      bool     // the forge is Gitea or Forgejo
	Summary    string   // file that takes the step summary; "" if there is none
}

// A Run is a workflow run for a pull request, which a later one with more rights
// follows. All of it but the commit can be chosen by the author of a fork.
type Run struct {
	Owner, Branch, Commit string // of the head
}

var repositoryName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*/[A-Za-z0-9._-]*[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

// ReadEvent reads GITHUB_REPOSITORY, GITHUB_API_URL, GITHUB_SERVER_URL,
// GITHUB_EVENT_PATH and GITHUB_STEP_SUMMARY, and the token from GITHUB_TOKEN alone.
func ReadEvent(getenv func(string) string) (*Event, error) {
	e := &Event{
		Repository: getenv("GITHUB_REPOSITORY"),
		Token:      getenv("GITHUB_TOKEN"),
		Server:     strings.TrimSuffix(getenv("GITHUB_SERVER_URL"), "/"),
		Summary:    getenv("GITHUB_STEP_SUMMARY"),
		Gitea:      getenv("GITEA_ACTIONS") == "true" || getenv("FORGEJO_ACTIONS") == "true",
	}
	api := getenv("GITHUB_API_URL")
	if api == "" {
		api = "https://api.github.com"
	}
	var err error
	if e.API, err = url.Parse(strings.TrimSuffix(api, "/")); err != nil || e.API.Host == "" || e.API.Scheme != "https" && e.API.Scheme != "http" {
		return nil, fmt.Errorf("GITHUB_API_URL is %q, which is no URL of an API", api)
	}
	// An API of Gitea is recognized by its path as well, outside of its runner.
	e.Gitea = e.Gitea || strings.HasSuffix(e.API.Path, "/api/v1")
	if e.Repository != "" && !repositoryName.MatchString(e.Repository) {
		return nil, fmt.Errorf("GITHUB_REPOSITORY is %q, not owner/name", e.Repository)
	}
	file := getenv("GITHUB_EVENT_PATH")
	if file == "" {
		return e, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the event: %w", err)
	}
	var payload struct {
		PullRequest *struct {
			Number int `json:"number"`
		} `json:"pull_request"`
		WorkflowRun *struct {
			Event      string `json:"event"`
			HeadBranch string `json:"head_branch"`
			HeadSHA    string `json:"head_sha"`
			Repository struct {
				Owner struct {
					Login string `json:"login"`
				} `json:"owner"`
			} `json:"head_repository"`
		} `json:"workflow_run"`
	}
	if err := json.Unmarshal(data, &payload); err != nil {
		return nil, fmt.Errorf("reading the event in %s: %w", file, err)
	}
	if payload.PullRequest != nil {
		e.Number = payload.PullRequest.Number
	}
	if r := payload.WorkflowRun; r != nil && r.Event == "pull_request" {
		e.Run = &Run{r.Repository.Owner.Login, r.HeadBranch, r.HeadSHA}
	}
	return e, nil
}

// AboutPull reports whether the event is about a pull request.
func (e *Event) AboutPull() bool { return e.Number != 0 || e.Run != nil }

// check reports what is missing for talking to the API.
func (e *Event) check() error {
	switch {
	case e.Repository == "":
		return errors.New("GITHUB_REPOSITORY is not set: the bot runs in a workflow, or with that variable naming owner/name")
	case e.Token == "":
		return errors.New("GITHUB_TOKEN is not set: pass the token of the workflow in the environment")
	}
	return nil
}
